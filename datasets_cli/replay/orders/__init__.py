"""Orders: which item comes at which place of an epoch, worked out only for the places asked for."""
