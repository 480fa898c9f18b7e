"""The version of this package, as reported to programs on other machines."""

VERSION = "0.1.0"
