"""The version of dueline."""

VERSION = "0.2.0"
