"""Build the agent's archive, build/agent.pyz: the same sources give the same bytes."""

from pathlib import Path

from supervisor.machinefolder.agent_archive import write_agent

TARGET = Path("build", "agent.pyz")

if __name__ == "__main__":
    print(write_agent(Path(__file__).parents[1] / TARGET).name, "is built")
