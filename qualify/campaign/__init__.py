"""YAML -> Campaign: read strictly, with file and line for everything that is wrong."""
