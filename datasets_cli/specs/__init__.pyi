"""The names of datasets_cli.specs, for type checkers and editors."""

from datasets_cli.specs.bounded import Bounded as Bounded
from datasets_cli.specs.bounded import Unbounded as Unbounded
from datasets_cli.specs.bounded import UnboundedContinuous as UnboundedContinuous
from datasets_cli.specs.bounded import UnboundedDiscrete as UnboundedDiscrete
from datasets_cli.specs.categorical import Binary as Binary
from datasets_cli.specs.categorical import Categorical as Categorical
from datasets_cli.specs.categorical import MultiCategorical as MultiCategorical
from datasets_cli.specs.check import check_env_specs as check_env_specs
from datasets_cli.specs.composite import Composite as Composite
from datasets_cli.specs.gymnasium_spaces import spec_from_gymnasium as spec_from_gymnasium
from datasets_cli.specs.leaf import NonTensor as NonTensor
from datasets_cli.specs.one_hot import MultiOneHot as MultiOneHot
from datasets_cli.specs.one_hot import OneHot as OneHot
from datasets_cli.specs.spec import TensorSpec as TensorSpec

_LAZY_IMPORTS: dict[str, str]
