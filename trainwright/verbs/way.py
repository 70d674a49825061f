"""The steps from a request to an image in its registry, as a list.

Each step takes the state of the work and returns a new one. Verbs are the beginning or the end of the list:
``plan`` is ``upto("resolve")``, ``build --stages`` is ``upto("build")``, and ``build`` is all of it.
A step imports what it needs when it runs, so ``plan`` loads no engine and no templates.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from msgspec.structs import replace

from trainwright.verbs.state import State, Step, known

if TYPE_CHECKING:
    from trainwright.sources.inputs import Inputs


def resolve(state: State) -> State:
    """From the request to the plan."""
    from trainwright.lock import unproven
    from trainwright.plan import resolve as resolving
    from trainwright.site.site import stated_region

    locks = unproven.make_lock(state.say) if state.to_build else unproven.stored_lock
    # A region that does not exist is refused, not replaced by the default.
    base, region = state.site.base_image, state.site.aws.region or stated_region()
    plan = resolving.resolve(known(state.request), state.catalog, base, locks, region)
    return replace(state, plan=plan if state.budget is None else plan.replace(budget=state.budget))


def gather(state: State) -> State:
    """Every byte that the build takes in, by the lock of the plan where there is one; nothing is fetched."""
    from trainwright.sources.gather import gather_locked

    plan = known(state.plan)
    return replace(state, inputs=gather_locked(plan, state.catalog, state.site, state.flags, strict=state.locked))


def check(state: State) -> State:
    """An engine answers, its builder can do what is asked of it, and every source answers, before any is asked for
    gigabytes."""
    from trainwright.build.build import builder_of
    from trainwright.engine import engine as engines
    from trainwright.engine import platforms
    from trainwright.engine.setup import ensure_tool
    from trainwright.plan.licences import check_public
    from trainwright.plan.plan_lock import lock_path
    from trainwright.sources import reachability

    inputs, options = known(state.inputs), known(state.options)
    if options.registry is not None:
        check_public(inputs.plan, options.registry, allowed=options.allow_redistribution)
    if inputs.lock is not None:
        state.say(f"with the lock {lock_path(inputs.plan, inputs.site)}")
    for notice in inputs.plan.notices:
        state.say(f"note: {notice}")
    if inputs.rootfs is not None:
        platforms.check_machine(inputs.plan.platform)
    engine = state.engine or engines.connect(say=state.say, ahead=state.looked)
    platforms.check_engine(engine, inputs.plan.platform)
    if inputs.rootfs is not None and inputs.rootfs.sha256 is None:
        ensure_tool("mmdebstrap", say=state.say)
    builder = builder_of(engine, inputs.site, options)
    reachability.check_folders(inputs)
    if not options.skip_source_check and not state.stages:  # what stages are not made from need not answer
        reachability.check_sources(inputs, engine)
    return replace(state, engine=engine, builder=builder, started=state.started or time.monotonic())


def fetch(state: State) -> State:
    """What no build step can fetch: files without a known checksum, the Debian base, images of a folder.

    With the base at hand, its archive is asked for the packages of ``--with-apt``, which are installed last."""
    from trainwright.sources import base_image, fetch

    options = known(state.options)
    inputs = fetch.fetch(known(state.inputs), fresh_base=options.fresh_base, refresh=options.refresh, say=state.say)
    arguments = base_image.build_arguments(inputs.images, known(state.engine), say=state.say)
    if not state.stages and (named := _unknown_packages(inputs)):
        from trainwright.lock.apt_packages import Start, check_named

        rootfs = inputs.rootfs.path if inputs.rootfs is not None else None
        images = {image.argument: image.pinned for image in inputs.images} | arguments
        start = Start(inputs.plan.base, rootfs, images)
        check_named(named, start, inputs.site, known(state.engine), say=state.say)
    return replace(state, inputs=inputs, arguments=arguments)


def _unknown_packages(inputs: Inputs) -> tuple[str, ...]:
    """The packages of ``--with-apt``, unless they are in the lock or an image of the plan was built before."""
    from trainwright.build.store import all_records
    from trainwright.user.system_packages import names_of

    asked = inputs.plan.user.apt
    held = {package.name for package in (inputs.lock.system if inputs.lock is not None else None) or ()}
    if held.issuperset(names_of(asked)) or any(record.plan.id == inputs.plan.id for record in all_records()):
        return ()
    return asked


def render(state: State) -> State:
    """The Dockerfile and its build context, in a folder that no other build of the plan writes to meanwhile."""
    from trainwright.build.context import write_context
    from trainwright.core.paths import locked, state_dir

    inputs, options = known(state.inputs), known(state.options)
    folder = state_dir() / "contexts" / inputs.plan.id[:16]
    state.held.enter_context(locked(folder))
    wheels = None
    if inputs.plan.compiled and not state.stages:  # stages are for other machines
        from trainwright.build.wheel_cache import WheelCache

        wheels = WheelCache(inputs, known(state.engine), fresh=options.no_cache, say=state.say)
        if state.site.wheels is not None:
            from trainwright.push.wheel_places import place_of

            wheels.place = place_of(state.site, wheels.engine)
    amend = dict if wheels is None else wheels.amend
    write_context(inputs, folder, say=state.say, refresh=options.refresh, amend=amend)
    return replace(state, folder=folder, wheels=wheels, dockerfile=(folder / "Dockerfile").read_text())


def look(state: State) -> State:
    """What one of AWS's containers holds, before it is extended: from here on the plan says that, too."""
    inputs = known(state.inputs)
    if inputs.plan.base.kind != "dlc" or state.stages:
        return state
    import dataclasses

    from trainwright.prove import base

    reference = next(image.pinned for image in inputs.images if image.argument == "BASE_IMAGE")
    reference = state.arguments.get("BASE_IMAGE", reference)
    looked = base.look(known(state.engine), reference, inputs.plan, state.catalog, say=state.say)
    base.check_claims(inputs.plan, known(state.request), looked)
    found = base.with_found(inputs.plan, looked, state.catalog)
    for notice in found.notices:
        if notice not in inputs.plan.notices:
            state.say(f"note: {notice}")
    return replace(state, inputs=dataclasses.replace(inputs, plan=found), base=base.summary(looked))


def prove_there(state: State) -> State:
    """What a builder finds that has the image where no container of it runs here: before the image is sent anywhere."""
    from trainwright.build.proved import prove_where_built, proves

    builder, inputs = known(state.builder), known(state.inputs)
    if state.stages or not proves(builder, inputs.plan, stay=known(state.options).stay):
        return state
    proven = prove_where_built(
        inputs,
        known(state.folder),
        known(state.engine),
        options=known(state.options),
        builder=builder,
        arguments=state.arguments,
        smoke=state.smoke or state.target is not None,
        say=state.say,
    )
    return replace(state, proven=proven)


def build(state: State) -> State:
    """From the context to an image without a tag, or to stages of it in the builder's cache."""
    import dataclasses

    from trainwright.build.build import run_build
    from trainwright.build.proved import check_stays, is_proven

    proven, options = state.proven, known(state.options)
    built = run_build(
        known(state.inputs),
        known(state.folder),
        known(state.engine),
        # What was built to be proven is in the cache.
        options=options if proven is None else options.replace(no_cache=False),
        builder=known(state.builder),
        arguments=state.arguments,
        stages=state.stages,
        say=state.say,
    )
    state.held.close()
    if proven is not None and not is_proven(built.progress):
        check_stays(built, options)
        state.say("the builder no longer had the image that it proved: this one is proven here")
        proven = None
    elif proven is not None:
        built = dataclasses.replace(built, progress=proven.progress)
    return replace(state, proven=proven, built=built)


def weigh(state: State) -> State:
    """The size of the image, which keeps the budget of its plan; one that does not is a failure."""
    from trainwright.build.weigh import check_budget, layers_in_engine

    built = known(state.built)
    history = tuple(layers_in_engine(known(state.engine), built.image_id))
    check_budget(known(state.inputs).plan, built, history, state.dockerfile)
    return replace(state, history=history)


def probe(state: State) -> State:
    """What is really in the image; another thing than the plan says is a failure."""
    from trainwright.build.build import probe_image

    again = known(state.options).no_cache
    inputs, engine, built = known(state.inputs), known(state.engine), known(state.built)
    proof = state.proven.proof if state.proven is not None else None
    found = probe_image(inputs, engine, built, base=state.base, again=again, proof=proof, say=state.say)
    return replace(state, probe=found)


def keep_wheels(state: State) -> State:
    """What was compiled for an image that is what its plan says, for later builds."""
    if state.wheels is not None:
        from trainwright.core.paths import locked

        folder = known(state.folder)
        with locked(folder):
            if (folder / "Dockerfile").read_text() == state.dockerfile:  # no other build has written it since
                state.wheels.keep(folder, state.arguments)
    return state


def tag_and_record(state: State) -> State:
    """The tags of an image that is what its plan says, and its record."""
    from trainwright.build.build import record_image

    record = record_image(
        known(state.inputs),
        known(state.engine),
        known(state.built),
        state.probe,
        history=state.history,
        dockerfile=state.dockerfile,
        options=known(state.options),
        seconds=time.monotonic() - state.started,
    )
    return replace(state, record=record)


def smoke(state: State) -> State:
    """The image tests, unless this image has passed them."""
    record = known(state.record)
    if not (state.smoke or state.target) or (record.smoke and record.smoke["failed"] == 0):
        return state
    from trainwright.build.smoke import smoke_record

    record, _ = smoke_record(
        record,
        record.tags[0],
        known(state.engine),
        say=state.say,
        bar=known(state.options).mode != "none",
        before=state.proven.proof if state.proven is not None else None,
    )
    return replace(state, record=record)


def push(state: State) -> State:
    """The image in its repository, where one is named."""
    if state.target is None:
        return state
    from trainwright.push.options import PushOptions
    from trainwright.push.push import push_images
    from trainwright.scan.gate import ScanGate
    from trainwright.signing.sign import signer

    site, target = state.site, state.target
    progress = known(state.options).progress
    options = PushOptions(progress=progress, soci=state.soci, leave_tags=state.leave_tags)
    image, scan = known(state.record).image_id, ScanGate(None, None, None, site).of_push
    sign = signer(site.signing.key, site, target.regions[0]) if site.signing.key else None
    return replace(state, pushed=push_images([image], target, site, options, say=state.say, scan=scan, sign=sign))


STEPS: tuple[Step, ...] = (
    *(resolve, gather, check, fetch, render),
    *(look, prove_there, build, weigh, probe, keep_wheels, tag_and_record, smoke, push),
)


def upto(name: str) -> tuple[Step, ...]:
    """The steps up to one, that included."""
    names = [step.__name__ for step in STEPS]
    return STEPS[: names.index(name) + 1]
