"""What people see in a notebook."""
