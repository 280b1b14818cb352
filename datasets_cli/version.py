"""The version of this program."""

__version__ = "0.9.0"
TOOL = f"rlds-cli {__version__}"
