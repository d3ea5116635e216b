"""What Triton would find wrong with the models of a repository."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from tritonclient.grpc import model_config_pb2 as pb


def faults(configs: Sequence[pb.ModelConfig]) -> list[str]:
    """Return what is wrong with the models of a repository; nothing where a server would load and run them."""
    models = {config.name: config for config in configs}
    found = [] if len(models) == len(configs) else ["two models have the same name"]
    for config in configs:
        for check in (_batching, _warmup, _graphs, _instances, _versions):
            found += [f"{config.name}: {fault}" for fault in check(config)]
        if config.HasField("ensemble_scheduling"):
            found += [f"{config.name}: {fault}" for fault in _ensemble(config, models)]
    return found


def _batching(config: pb.ModelConfig) -> Iterator[str]:
    batching = config.dynamic_batching
    for size in batching.preferred_batch_size:
        if not 0 < size <= config.max_batch_size:
            yield f"the preferred batch size {size} is not from 1 to {config.max_batch_size}"
    levels = batching.priority_levels
    if batching.default_priority_level > levels or bool(levels) != bool(batching.default_priority_level):
        yield f"the default priority {batching.default_priority_level} is not one of {levels}"
    for level in batching.priority_queue_policy:
        if not 1 <= level <= levels:
            yield f"there is a queue policy for priority {level}, and there are {levels}"


def _warmup(config: pb.ModelConfig) -> Iterator[str]:
    inputs = {tensor.name: tensor for tensor in config.input}
    for sample in config.model_warmup:
        if sample.batch_size > max(config.max_batch_size, 1):
            yield f"warm-up {sample.name!r} is larger than {config.max_batch_size}"
        missing = [name for name, tensor in inputs.items() if not tensor.optional and name not in sample.inputs]
        if missing:
            yield f"warm-up {sample.name!r} lacks {', '.join(missing)}"
        for name, given in sample.inputs.items():
            tensor = inputs.get(name)
            if tensor is None:
                yield f"warm-up {sample.name!r} has {name}, which is not an input"
            elif given.data_type != tensor.data_type or not _dims_agree(given.dims, tensor.dims):
                yield f"warm-up {sample.name!r}: {name} is {_form(given)}, and the input {_form(tensor)}"


def _graphs(config: pb.ModelConfig) -> Iterator[str]:
    cuda = config.optimization.cuda
    if cuda.graphs and config.backend != "tensorrt":
        yield f"CUDA graphs are for TensorRT plans, not for backend {config.backend}"
    inputs = {tensor.name: tensor for tensor in config.input}
    for spec in cuda.graph_spec:
        if spec.batch_size > config.max_batch_size:
            yield f"a CUDA graph is for batches of {spec.batch_size}, and {config.max_batch_size} is the most"
        for name, shape in spec.input.items():
            if name not in inputs or not _dims_agree(shape.dim, inputs[name].dims):
                yield f"a CUDA graph is for {name} {list(shape.dim)}, which no request can have"


def _instances(config: pb.ModelConfig) -> Iterator[str]:
    kinds = pb.ModelInstanceGroup
    for group in config.instance_group:
        if config.HasField("ensemble_scheduling"):
            yield "an ensemble has no instances"
        if group.count < 1:
            yield "an instance group has no instance"
        if group.kind == kinds.KIND_CPU and (group.gpus or config.backend == "tensorrt"):
            yield "it needs a GPU, and its instances are on the CPU"
        if group.profile and config.backend != "tensorrt":
            yield f"optimization profiles are for TensorRT plans, not for backend {config.backend}"


def _versions(config: pb.ModelConfig) -> Iterator[str]:
    policy = config.version_policy
    if policy.HasField("latest") and policy.latest.num_versions < 1:
        yield "it serves no version"
    if not config.backend and not config.platform:
        yield "it names neither backend nor platform"


@dataclass(frozen=True)
class _Edge:
    """Where a tensor of an ensemble comes from."""

    origin: str
    tensor: pb.ModelInput
    batches: bool
    optional: bool = False


def _ensemble(config: pb.ModelConfig, models: Mapping[str, pb.ModelConfig]) -> Iterator[str]:
    """Yield the rules of Triton's ensemble scheduler, and that what is asked for can be computed."""
    edges: dict[str, _Edge] = {}
    batches = config.max_batch_size > 0
    for tensor in config.input:
        edges[tensor.name] = _Edge(config.name, tensor, batches, tensor.optional)
    steps = [(step, models[step.model_name]) for step in config.ensemble_scheduling.step if step.model_name in models]
    for step in config.ensemble_scheduling.step:
        if step.model_name not in models:
            yield f"step {step.model_name} is not a model of the repository"
    for step, model in steps:
        if model.max_batch_size and model.max_batch_size < config.max_batch_size:
            yield f"it takes batches of {config.max_batch_size}, and its step {model.name} only {model.max_batch_size}"
        yield from _produced(step, model, edges)
    for step, model in steps:
        yield from _consumed(step, model, edges)
    for tensor in config.output:
        edge = edges.get(tensor.name)
        if edge is None or edge.origin == config.name:
            yield f"no step makes its output {tensor.name}"
        else:
            yield from _compare(edge, tensor, f"the output {tensor.name}", batches)
    used = {name for step, _ in steps for name in step.input_map.values()}
    for tensor in config.input:
        if tensor.name not in used:
            yield f"no step takes its input {tensor.name}"
    yield from _cycles(steps)


def _produced(step: pb.ModelEnsembling.Step, model: pb.ModelConfig, edges: dict[str, _Edge]) -> Iterator[str]:
    outputs = {tensor.name: tensor for tensor in model.output}
    for name, tensor in step.output_map.items():
        if name not in outputs:
            yield f"step {model.name} has no output {name}"
        elif tensor in edges:
            yield f"{tensor} is made by {edges[tensor].origin} and by {model.name}"
        else:
            edges[tensor] = _Edge(model.name, outputs[name], model.max_batch_size > 0)


def _consumed(step: pb.ModelEnsembling.Step, model: pb.ModelConfig, edges: Mapping[str, _Edge]) -> Iterator[str]:
    inputs = {tensor.name: tensor for tensor in model.input}
    for name, tensor in inputs.items():
        if name not in step.input_map:
            if not tensor.optional:
                yield f"step {model.name} is not given its input {name}"
            continue
        edge = edges.get(step.input_map[name])
        if edge is None:
            yield f"step {model.name} is given {step.input_map[name]}, which nothing makes"
            continue
        if edge.optional and not tensor.optional:
            yield f"{step.input_map[name]} may be missing, and {model.name} cannot do without"
        yield from _compare(edge, tensor, f"{model.name}'s input {name}", model.max_batch_size > 0)
    for name in step.input_map:
        if name not in inputs:
            yield f"step {model.name} has no input {name}"


def _compare(edge: _Edge, tensor: pb.ModelInput, what: str, batches: bool) -> Iterator[str]:
    given, wanted = edge.tensor, tensor
    same = given.data_type == wanted.data_type
    plain = _dims_agree(given.dims, wanted.dims) and edge.batches == batches
    whole = _dims_agree(_with_batch(given.dims, edge.batches), _with_batch(wanted.dims, batches))
    if not same or not (plain or whole):
        yield f"{edge.origin} gives {_form(given)}, and {what} is {_form(wanted)}"


def _cycles(steps: Sequence[tuple[pb.ModelEnsembling.Step, pb.ModelConfig]]) -> Iterator[str]:
    """Steps that wait for each other."""
    makers = {tensor: number for number, (step, _) in enumerate(steps) for tensor in step.output_map.values()}
    ready: set[int] = set()
    left = set(range(len(steps)))
    waits: Callable[[int], bool] = lambda number: any(  # noqa: E731
        makers.get(tensor, number) not in ready and tensor in makers for tensor in steps[number][0].input_map.values()
    )
    while free := {number for number in left if not waits(number)}:
        ready |= free
        left -= free
    if left:
        yield f"these steps wait for each other: {', '.join(sorted(steps[number][1].name for number in left))}"


def _with_batch(dims: Sequence[int], batches: bool) -> list[int]:
    return [-1, *dims] if batches else list(dims)


def _dims_agree(one: Sequence[int], other: Sequence[int]) -> bool:
    return len(one) == len(other) and all(a == b or -1 in (a, b) for a, b in zip(one, other))


def _form(tensor: pb.ModelInput) -> str:
    kind: str = pb.DataType.Name(tensor.data_type)
    return f"{kind.removeprefix('TYPE_')} {list(tensor.dims)}"
