"""moto, run in this process: the store of instances and groups, and the wire format of everything we do not change.

moto knows the shape of every EC2, Auto Scaling and S3 answer but moves through instance states in no time. So it keeps
the objects, and `simulator.cloud.compute` writes each state into them as it comes; moto's own describe calls then show
the truth, filters included. moto's backends are global to a process: there is one store per process at a time.
"""

import asyncio
import functools
import logging
import os
from collections.abc import Iterator, Mapping
from threading import Thread

import aiohttp
from moto.autoscaling.models import AutoScalingBackend, FakeAutoScalingGroup, autoscaling_backends
from moto.autoscaling.models import InstanceState as MotoMember
from moto.core.models import DEFAULT_ACCOUNT_ID
from moto.ec2.models import EC2Backend, ec2_backends
from moto.ec2.models.instances import Instance as MotoInstance
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, MotoRequestHandler, create_backend_app
from werkzeug.serving import make_server

from simulator.cloud.instances import State

IMAGE = "ami-12c6146b"
"""What simulated machines boot; moto does not check it."""

STOP_POLL_SECONDS = 0.05
"""How often moto's server looks whether it is to stop. moto's own `ThreadedMotoServer` takes half a second for it."""


@functools.cache
def moto_application() -> DomainDispatcherApplication:
    """moto's web application, made once: building the routes of a service takes longer than most stories."""
    return DomainDispatcherApplication(create_backend_app)


class MotoStore:
    """moto's server thread, and its backends of one region."""

    def __init__(self, region: str) -> None:
        self.region = region
        self.turn = asyncio.Lock()
        """Held around every call to moto's EC2 and Auto Scaling and every change of its collections: the server thread
        iterates over them unguarded."""
        self._server = make_server(
            "127.0.0.1", 0, moto_application(), threaded=True, request_handler=MotoRequestHandler
        )
        self._thread = Thread(target=self._server.serve_forever, args=(STOP_POLL_SECONDS,), daemon=True)

    @property
    def url(self) -> str:
        """Where moto itself listens."""
        return f"http://127.0.0.1:{self._server.server_port}"

    async def start(self) -> None:
        """Start moto, empty."""
        logging.getLogger("werkzeug").setLevel(logging.WARNING)
        # Without its catalogue of public machine images, which nobody here asks for, moto starts seconds sooner.
        os.environ.setdefault("MOTO_EC2_LOAD_DEFAULT_AMIS", "false")
        self._thread.start()
        async with aiohttp.ClientSession() as session, session.post(f"{self.url}/moto-api/reset") as answer:
            answer.raise_for_status()
        await asyncio.to_thread(lambda: (self._ec2, self._autoscaling))

    async def stop(self) -> None:
        """End moto's server thread."""
        await asyncio.to_thread(self._server.shutdown)
        await asyncio.to_thread(self._thread.join)

    def instances(self) -> list[MotoInstance]:
        """All instances, terminated ones among them."""
        return self._ec2.all_instances()

    def run(self, instance_type: str, zone: str, tags: Mapping[str, str]) -> str:
        """Make one instance; its id."""
        reservation = self._ec2.run_instances(
            IMAGE,
            1,
            None,
            [],
            instance_type=instance_type,
            is_instance_type_default=False,
            placement=zone,
            region_name=self.region,
            tags={"instance": dict(tags)},
        )
        return reservation.instances[0].id

    def show_state(self, instance_id: str, state: State) -> None:
        """Let moto's describe calls show this state."""
        shown = self._ec2.get_instance(instance_id)
        if state is State.TERMINATED:
            shown.terminate()
        shown._state.name, shown._state.code = state.value, state.code

    def forget(self, instance_id: str) -> None:
        """Let moto no longer know this id."""
        for reservation in self._ec2.reservations.values():
            reservation.instances = [kept for kept in reservation.instances if kept.id != instance_id]

    def termination_protected(self, instance_id: str) -> bool:
        """Whether `disableApiTermination` is on."""
        return str(self._ec2.get_instance(instance_id).disable_api_termination).lower() == "true"

    def protect(self, instance_id: str, on: bool) -> None:
        """Set `disableApiTermination`."""
        self._ec2.modify_instance_attribute(instance_id, "disable_api_termination", on)

    def groups(self) -> list[FakeAutoScalingGroup]:
        """All Auto Scaling groups."""
        return list(self._autoscaling.autoscaling_groups.values())

    def members(self) -> Iterator[tuple[FakeAutoScalingGroup, MotoMember]]:
        """Every member of every group."""
        for group in self.groups():
            for member in list(group.instance_states):
                yield group, member

    def create_group(self, name: str, instance_type: str, size: int, zone: str, tags: Mapping[str, str]) -> None:
        """Make an Auto Scaling group with its first members. It keeps at least `size`, and may have one more."""
        self._autoscaling.create_launch_configuration(
            name=name,
            image_id=IMAGE,
            key_name=None,
            kernel_id="",
            ramdisk_id="",
            security_groups=[],
            user_data=None,
            instance_type=instance_type,
            instance_monitoring=False,
            instance_profile_name=None,
            spot_price=None,
            ebs_optimized=False,
            associate_public_ip_address=False,
            block_device_mappings=[],
        )
        self._autoscaling.create_auto_scaling_group(
            name=name,
            availability_zones=[zone],
            desired_capacity=size,
            max_size=size + 1,
            min_size=size,
            launch_config_name=name,
            launch_template={},
            vpc_zone_identifier=None,
            default_cooldown=None,
            health_check_period=None,
            health_check_type=None,
            load_balancers=[],
            target_group_arns=[],
            placement_group=None,
            termination_policies=[],
            tags=[{"Key": key, "Value": value, "PropagateAtLaunch": "true"} for key, value in tags.items()],
        )

    @property
    def _ec2(self) -> EC2Backend:
        return ec2_backends[DEFAULT_ACCOUNT_ID][self.region]

    @property
    def _autoscaling(self) -> AutoScalingBackend:
        return autoscaling_backends[DEFAULT_ACCOUNT_ID][self.region]
