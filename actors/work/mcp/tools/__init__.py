"""What models see of servers, and what servers may ask people and models in return."""
