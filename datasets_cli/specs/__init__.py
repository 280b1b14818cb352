"""Specs: shapes, dtypes and spaces of tensors; converted from and to gymnasium spaces and JSON."""
