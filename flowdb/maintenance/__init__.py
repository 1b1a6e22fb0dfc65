"""What an administrator does with the database: `weir db`, figures, exports."""
