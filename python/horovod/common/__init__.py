"""What the packages of all frameworks share. Imports no framework."""
