"""What the user wrote: property files, key definitions, flows and connector configs."""
