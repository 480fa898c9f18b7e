"""What is said to a server, in either era of the protocol, whatever the link."""
