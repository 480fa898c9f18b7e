"""The version of this package, as programs on other machines hear it."""

VERSION = "0.1.0"
