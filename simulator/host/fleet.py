"""All machines of a simulation, in the order in which the cloud made them.

The cloud calls it as its machine factory; the fault player and the control API find machines in it. Machines that the
cloud has ended stay in it, off.
"""

from simulator.host.machine import HostMachine, Site


class Fleet:
    """The machines there are and were."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self.machines: list[HostMachine] = []

    def __call__(self, instance_id: str, node_name: str, instance_type: str) -> HostMachine:
        """A new machine that is off. Raises ValueError for an instance type that is not simulated."""
        machine = HostMachine(instance_id, node_name, instance_type, self._site)
        self.machines.append(machine)
        return machine

    def find(self, name: str) -> HostMachine:
        """The machine of this instance id, or the newest of this node name. Raises KeyError."""
        for machine in reversed(self.machines):
            if name in (machine.instance_id, machine.node_name):
                return machine
        raise KeyError(name)

    async def stop(self) -> None:
        """Take the power from every machine."""
        for machine in self.machines:
            await machine.stop()
