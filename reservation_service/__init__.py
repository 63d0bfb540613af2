"""A reservation service whose holds free themselves: durable actors, one alarm slot each."""
