"""What batches are made of: tensors of torch, arrays of numpy, or arrays of jax."""
