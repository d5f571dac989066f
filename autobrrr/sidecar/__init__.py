"""One background process per attached job: it reads the ring, commands the agent, serves clients."""
