"""Legacy sessions: the actor of each, the messages that it holds, and where sessions are found and moved."""
