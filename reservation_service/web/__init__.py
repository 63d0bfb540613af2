"""HTTP in front of the actors: parse, ask the actor, render."""
