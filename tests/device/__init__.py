"""What only a GPU can show; where there is none, each test is skipped and says so."""

import pytest
import torch

needs_gpu = pytest.mark.skipif(
    not torch.cuda.is_available(), reason="torch.cuda.is_available() is False: no GPU here"
)
