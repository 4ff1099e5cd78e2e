"""Build the agent's archive, build/agent.pyz: the same bytes from the same sources, whoever builds it."""

from pathlib import Path

from supervisor.machinefolder.agent_archive import write_agent

TARGET = Path("build", "agent.pyz")

if __name__ == "__main__":
    print(write_agent(Path(__file__).parents[1] / TARGET).name, "is built")
