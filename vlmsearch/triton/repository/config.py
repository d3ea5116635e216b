"""The configuration of each model of a repository, as Triton's own messages."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import get_args

from tritonclient.grpc import model_config_pb2 as pb

from vlmsearch.errors import ConfigError
from vlmsearch.media.preprocess import Preprocess
from vlmsearch.models.bundle import LENGTH_STEP, Bundle, Tower
from vlmsearch.models.recipe import Shapes
from vlmsearch.models.reranker import RerankerBundle, RerankerPrecision
from vlmsearch.triton.client import protocol
from vlmsearch.triton.repository.options import RepoOptions
from vlmsearch.types import Role

_GRAPH_LENGTHS = (LENGTH_STEP, 2 * LENGTH_STEP, 4 * LENGTH_STEP)
"""Lengths of texts that CUDA graphs are captured for: queries."""
_WARM_LENGTH = 2 * LENGTH_STEP
_ENTRIES = 2
"""Instances of the model that every request goes through."""


def preprocess_config(bundle: Bundle, options: RepoOptions) -> pb.ModelConfig:
    """``image_preprocess``: encoded images to pixels."""
    if bundle.preprocess is None:
        raise ConfigError(f"{bundle.name} has no image tower")
    size = bundle.preprocess.size
    config = _python_model(protocol.PREPROCESS, options)
    config.input.add(name=protocol.ENCODED, data_type=pb.TYPE_STRING, dims=[1])
    config.output.add(name=protocol.PIXELS, data_type=pb.TYPE_UINT8, dims=[size, size, 3])
    config.output.add(name=protocol.STATUS, data_type=pb.TYPE_STRING, dims=[1])
    _put(config, protocol.FINGERPRINT, bundle.fingerprint)
    _put_preprocess(config, bundle.preprocess, options)
    if options.decode == "gpu":
        config.instance_group[0].kind = pb.ModelInstanceGroup.KIND_GPU
        config.instance_group[0].gpus.extend(options.gpus)
    if options.warmup:
        _warm_from_file(config, protocol.ENCODED)
    return config


def tokenize_config(bundles: Sequence[Bundle], options: RepoOptions) -> pb.ModelConfig:
    """``text_tokenize``: texts to the token ids of every text tower; images are handed on as they are.

    It alone sees what a client sent, one request at a time. That makes the ensemble robust. Triton gives the memory of
    a request back as soon as one step fails, though others may be reading it. A request without any input, in a batch
    with others, stops Triton's Python backend for good.
    """
    config = _python_model(protocol.TOKENIZE, options)
    config.ClearField("dynamic_batching")
    config.instance_group[0].count = _ENTRIES
    _add_inputs(config)
    if any(bundle.preprocess for bundle in bundles):
        config.output.add(name=protocol.ENCODED, data_type=pb.TYPE_STRING, dims=[1])
    for bundle in bundles:
        name = bundle.space.name
        for tensor in (protocol.ids_tensor(name), protocol.mask_tensor(name)):
            config.output.add(name=tensor, data_type=pb.TYPE_INT32, dims=[_columns(bundle)])
        config.output.add(name=protocol.tokens_tensor(name), data_type=pb.TYPE_INT32, dims=[1])
    _put(config, protocol.FINGERPRINT, "+".join(bundle.fingerprint for bundle in bundles))
    _put(config, "bundles", json.dumps([bundle.name for bundle in bundles]))
    _put(config, "max_text_bytes", str(options.max_text_bytes))
    if options.warmup:
        _warm_from_file(config, protocol.TEXT)
    return config


def reranker_config(bundle: RerankerBundle, options: RepoOptions) -> pb.ModelConfig:
    """``reranker``: queries and texts to probabilities, in one model of the Python backend, on the CPU."""
    config = _python_model(protocol.RERANKER, options)
    for name in (protocol.QUERY, protocol.TEXT):
        config.input.add(name=name, data_type=pb.TYPE_STRING, dims=[1])
    config.output.add(name=protocol.PROBABILITY, data_type=pb.TYPE_FP32, dims=[1])
    _put(config, protocol.FINGERPRINT, bundle.fingerprint)
    _put(config, "precision", reranker_precision(options))
    _put(config, "threads", str(options.threads))
    _put(config, "max_text_bytes", str(options.max_text_bytes))
    return config


def reranker_precision(options: RepoOptions) -> RerankerPrecision:
    """Return the precision of a re-ranker, which has two."""
    return "fp32" if options.precision == "fp32" else "int8"


def tower_config(
    bundle: Bundle, tower: Tower, shapes: Shapes, options: RepoOptions, *, profiles: int = 1
) -> pb.ModelConfig:
    """Return one tower: pixels or token ids to unit vectors. ``shapes`` and ``profiles`` are what a plan is made for.

    Where it decodes by itself, an image tower takes encoded images.
    """
    image = tower == "image" and bundle.preprocess is not None
    config = _model(
        protocol.image_model(bundle.space.name) if image else protocol.text_model(bundle.space), options, shapes, tower
    )
    config.backend = options.platform
    encoded = options.decodes_in_tower and image
    if encoded and bundle.preprocess:
        config.input.add(name=protocol.ENCODED, data_type=pb.TYPE_STRING, dims=[1])
        config.output.add(name=protocol.STATUS, data_type=pb.TYPE_STRING, dims=[1])
        _put_preprocess(config, bundle.preprocess, options)
    elif image and bundle.preprocess:
        size = bundle.preprocess.size
        config.input.add(name=protocol.PIXELS, data_type=pb.TYPE_UINT8, dims=[size, size, 3])
    else:
        for name in (protocol.IDS, protocol.MASK):
            config.input.add(name=name, data_type=pb.TYPE_INT32, dims=[_columns(bundle)])
    config.output.add(name=protocol.EMBEDDING, data_type=pb.TYPE_FP32, dims=[bundle.space.dim])
    _place(config, options, tower, profiles)
    _put(config, protocol.FINGERPRINT, bundle.fingerprint)
    _add_runtime(config, options, shapes)
    if options.warmup and encoded:
        _warm_from_file(config, protocol.ENCODED)
    elif options.warmup:
        for size in sorted({1, config.max_batch_size}):
            _warm_with_zeros(config, size)
    return config


def _columns(bundle: Bundle) -> int:
    """Return how many columns token ids have: as many as texts are padded to, or any number, -1."""
    return bundle.text.fill or -1


def ensemble_config(bundles: Sequence[Bundle], options: RepoOptions, largest: int) -> pb.ModelConfig:
    """``vlm``: everything from encoded images and texts to vectors, in batches of up to ``largest``."""
    config = pb.ModelConfig(name=protocol.ENSEMBLE, platform="ensemble", max_batch_size=largest)
    _add_inputs(config)
    made: dict[str, str] = {}
    for bundle in bundles:
        name, model = bundle.space.name, protocol.text_model(bundle.space)
        config.output.add(name=model.upper(), data_type=pb.TYPE_FP32, dims=[bundle.space.dim])
        config.output.add(name=protocol.tokens_tensor(name), data_type=pb.TYPE_INT32, dims=[1])
        arrays = {protocol.IDS: protocol.ids_tensor(name), protocol.MASK: protocol.mask_tensor(name)}
        made |= {tensor: tensor for tensor in (*arrays.values(), protocol.tokens_tensor(name))}
        _step(config, model, arrays, {protocol.EMBEDDING: model.upper()})
    picture = next((bundle for bundle in bundles if bundle.preprocess), None)
    if picture:
        name = protocol.image_model(picture.space.name)
        config.output.add(name=name.upper(), data_type=pb.TYPE_FP32, dims=[picture.space.dim])
        config.output.add(name=protocol.STATUS, data_type=pb.TYPE_STRING, dims=[1])
        _image_steps(config, name, options)
        made[protocol.ENCODED] = protocol.ENCODED
    _step(config, protocol.TOKENIZE, {tensor.name: tensor.name for tensor in config.input}, made)
    _put(config, protocol.DEPLOYMENT, _deployment(bundles, options).to_json())
    if options.response_cache:
        config.response_cache.enable = True
    return config


def _image_steps(config: pb.ModelConfig, tower: str, options: RepoOptions) -> None:
    """From encoded images to vectors and statuses, in one model or two."""
    encoded, vectors = {protocol.ENCODED: protocol.ENCODED}, {protocol.EMBEDDING: tower.upper()}
    statuses, pixels = {protocol.STATUS: protocol.STATUS}, {protocol.PIXELS: protocol.PIXELS}
    if options.decodes_in_tower:
        _step(config, tower, encoded, vectors | statuses)
        return
    _step(config, protocol.PREPROCESS, encoded, pixels | statuses)
    _step(config, tower, pixels, vectors)


def _add_inputs(config: pb.ModelConfig) -> None:
    config.input.add(name=protocol.IMAGE, data_type=pb.TYPE_STRING, dims=[1], optional=True)
    config.input.add(name=protocol.TEXT, data_type=pb.TYPE_STRING, dims=[1], optional=True)
    config.input.add(name=protocol.ROLE, data_type=pb.TYPE_STRING, dims=[1], optional=True)


def _deployment(bundles: Sequence[Bundle], options: RepoOptions) -> protocol.Deployment:
    picture = next((bundle for bundle in bundles if bundle.preprocess), None)
    towers = {protocol.text_model(bundle.space): bundle.fingerprint for bundle in bundles}
    if picture:
        towers[protocol.image_model(picture.space.name)] = picture.fingerprint
        if not options.decodes_in_tower:
            towers[protocol.PREPROCESS] = picture.fingerprint
    together = "+".join(bundle.fingerprint for bundle in bundles)
    return protocol.Deployment(
        fingerprint=together,
        spaces=tuple(bundle.space for bundle in bundles),
        dims={bundle.space.name: bundle.dims for bundle in bundles},
        preprocess=picture.preprocess if picture else None,
        rooms={bundle.space.name: {role: bundle.text.room(role) for role in get_args(Role)} for bundle in bundles},
        relevance={(bundle.space.name, kind): fit for bundle in bundles for kind, fit in bundle.relevance.items()},
        towers=dict(sorted({**towers, protocol.TOKENIZE: together}.items())),
        image_limits=options.image_limits,
        max_text_bytes=options.max_text_bytes,
    )


def _step(config: pb.ModelConfig, model: str, inputs: Mapping[str, str], outputs: Mapping[str, str]) -> None:
    step = config.ensemble_scheduling.step.add(model_name=model, model_version=-1)
    step.input_map.update(inputs)
    step.output_map.update(outputs)


def _model(name: str, options: RepoOptions, shapes: Shapes | None, tower: Tower) -> pb.ModelConfig:
    """Return what all models have: batching, queueing and versions."""
    config = pb.ModelConfig(name=name, max_batch_size=options.max_batch_size)
    if shapes and options.engines:
        min_batch, _, max_batch = shapes.image_batch if tower == "image" else shapes.text_batch
        config.max_batch_size = min(options.max_batch_size, max_batch)
        if min_batch > 1:
            raise ConfigError(
                f"{name}: Triton sends batches of 1 to {config.max_batch_size}, and the plan takes {min_batch} to "
                f"{max_batch}: build it with `--profile 1,...`"
            )
    queue, batching = options.queue, config.dynamic_batching
    batching.preferred_batch_size.extend(size for size in queue.preferred if size <= config.max_batch_size)
    batching.max_queue_delay_microseconds = queue.delay_us
    policy = batching.default_queue_policy
    policy.max_queue_size = queue.limit
    policy.default_timeout_microseconds = queue.timeout_ms * 1000
    policy.allow_timeout_override = True  # a request that nobody waits for any more is not computed
    return config


def _python_model(name: str, options: RepoOptions) -> pb.ModelConfig:
    config = _model(name, options, None, "text")
    config.backend = "python"
    config.instance_group.add(kind=pb.ModelInstanceGroup.KIND_CPU, count=1)
    _put(config, "threads", "0")
    return config


def _place(config: pb.ModelConfig, options: RepoOptions, tower: Tower, profiles: int) -> None:
    on_gpu = options.found_device == "gpu"
    kind = pb.ModelInstanceGroup.KIND_GPU if on_gpu else pb.ModelInstanceGroup.KIND_CPU
    gpus = options.gpus if on_gpu else ()
    group = config.instance_group.add(kind=kind, count=options.found_instances(tower), gpus=gpus)
    if options.platform == "tensorrt":
        group.profile.extend(map(str, range(profiles)))


def _add_runtime(config: pb.ModelConfig, options: RepoOptions, shapes: Shapes) -> None:
    """Add the settings that only one of the platforms has."""
    if options.platform == "python":
        _put(config, "threads", str(options.threads))
    elif options.platform == "tensorrt":
        _capture_graphs(config, shapes)
    elif options.found_device == "cpu":
        _put(config, "intra_op_thread_count", str(options.threads))


def _capture_graphs(config: pb.ModelConfig, shapes: Shapes) -> None:
    cuda = config.optimization.cuda
    cuda.graphs = True
    cuda.busy_wait_events = True
    cuda.output_copy_stream = True
    text = -1 in config.input[0].dims
    sizes = {1} if text else {1, *config.dynamic_batching.preferred_batch_size, config.max_batch_size}
    shortest, _, longest = shapes.columns
    lengths = [length for length in _GRAPH_LENGTHS if shortest <= length <= longest]
    for size in sorted(sizes):
        for length in lengths if text else (0,):
            spec = cuda.graph_spec.add(batch_size=size)
            for tensor in config.input:
                spec.input[tensor.name].dim.extend(dim if dim > 0 else length for dim in tensor.dims)


def _warm_with_zeros(config: pb.ModelConfig, size: int) -> None:
    sample = config.model_warmup.add(name=f"batch of {size}", batch_size=size)
    for tensor in config.input:
        dims = [dim if dim > 0 else _WARM_LENGTH for dim in tensor.dims]
        sample.inputs[tensor.name].CopyFrom(pb.ModelWarmup.Input(data_type=tensor.data_type, dims=dims, zero_data=True))


def _warm_from_file(config: pb.ModelConfig, tensor: str) -> None:
    """Add one item for warming up, whose bytes lie in the folder ``warmup``.

    That is in the model's folder. The file is named like the tensor.
    """
    sample = config.model_warmup.add(name="one item", batch_size=1)
    form = pb.ModelWarmup.Input(data_type=pb.TYPE_STRING, dims=[1], input_data_file=tensor)
    sample.inputs[tensor].CopyFrom(form)


def _put_preprocess(config: pb.ModelConfig, preprocess: Preprocess, options: RepoOptions) -> None:
    _put(config, "preprocess", json.dumps(asdict(preprocess)))
    _put(config, "image_limits", json.dumps(asdict(options.image_limits)))


def _put(config: pb.ModelConfig, name: str, value: str) -> None:
    config.parameters[name].string_value = value
