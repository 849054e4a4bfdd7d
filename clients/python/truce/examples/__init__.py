"""Example applications. Each is one file that you can copy."""
