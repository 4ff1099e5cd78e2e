"""Fakes of the ports; each passes the conformance suite of the port it stands for."""
