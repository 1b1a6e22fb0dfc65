"""Helpers for the tests of DCUDP."""
