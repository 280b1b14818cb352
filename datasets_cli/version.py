"""The version of this program."""

__version__ = "0.2.0"
TOOL = f"rlds-cli {__version__}"
