"""Training on several ranks is training of one process on the larger batch."""

from __future__ import annotations

import pickle
from typing import Any

import mxnet as mx
import numpy as np
import pytest
from mx_ranks import EVERYWHERE, on_ranks
from mx_reference import array, mine, same, value
from mxnet import autograd, gluon

import horovod.mxnet as hvd

ROWS, STEPS = 4, 5  #: rows per rank and step
SGD = {"learning_rate": 0.05, "momentum": 0.9}


def network(seed: int) -> gluon.nn.HybridSequential:
    mx.random.seed(seed)
    net = gluon.nn.HybridSequential(prefix="net_")
    with net.name_scope():
        net.add(gluon.nn.Dense(8, activation="relu", in_units=5), gluon.nn.Dense(1, in_units=8))
    net.initialize(mx.init.Xavier())
    net.hybridize()
    return net


def batches() -> list[tuple[Any, Any]]:
    """Of all ranks."""
    random = np.random.RandomState(3)
    rows = ROWS * hvd.size()
    return [
        (random.rand(rows, 5).astype(np.float32), random.rand(rows, 1).astype(np.float32))
        for _ in range(STEPS)
    ]


def own_rows(values: Any) -> Any:
    return values[ROWS * hvd.rank() : ROWS * (hvd.rank() + 1)]


def step(net: Any, trainer: Any, x: Any, y: Any) -> None:
    with autograd.record():
        loss = gluon.loss.L2Loss()(net(mx.nd.array(x)), mx.nd.array(y))
    loss.backward()
    trainer.step(len(x))


def parameters(net: Any) -> dict[str, Any]:
    return {name: one.data().asnumpy() for name, one in net.collect_params().items()}


def expected(optimizer: str = "sgd", options: Any = SGD) -> dict[str, Any]:
    """The parameters after training in one process."""
    net = network(1)
    trainer = gluon.Trainer(net.collect_params(), optimizer, options, kvstore=None)
    for x, y in batches():
        step(net, trainer, x, y)
    return parameters(net)


def close(found: dict[str, Any], wanted: dict[str, Any], tolerance: float = 1e-5) -> None:
    assert found.keys() == wanted.keys()
    for name, values in wanted.items():
        np.testing.assert_allclose(found[name], values, tolerance, tolerance, err_msg=name)


def trained(make: Any, prefix: str | None = None) -> dict[str, Any]:
    net = network(1 + hvd.rank())
    hvd.broadcast_parameters(net.collect_params(), root_rank=0, prefix=prefix)
    trainer = make(net.collect_params())
    for x, y in batches():
        step(net, trainer, own_rows(x), own_rows(y))
    return parameters(net)


@on_ranks(*EVERYWHERE)
def test_the_trainer_trains_like_one_process_on_all_rows() -> None:
    wanted = expected()
    close(trained(lambda params: hvd.DistributedTrainer(params, "sgd", SGD)), wanted)
    for options in [
        {"num_groups": 1},
        {"num_groups": 3, "prefix": "other."},
        {"gradient_predivide_factor": 2.0},
    ]:
        found = trained(lambda p, o=options: hvd.DistributedTrainer(p, "sgd", SGD, **o), "p.")
        close(found, wanted)
    options = {"compression": hvd.Compression.fp16, "num_groups": 2}
    close(trained(lambda p: hvd.DistributedTrainer(p, "sgd", SGD, **options)), wanted, 1e-2)


@on_ranks(2)
def test_the_trainer_takes_an_optimizer_and_unwraps_a_distributed_one() -> None:
    adam = {"learning_rate": 0.01}
    wanted = expected("adam", adam)
    made = mx.optimizer.create("adam", **adam)
    close(trained(lambda params: hvd.DistributedTrainer(params, made)), wanted)
    wrapped = hvd.DistributedOptimizer(mx.optimizer.create("adam", **adam))

    def unwrapping(params: Any) -> Any:
        with pytest.warns(UserWarning, match="reduces the gradients itself"):
            return hvd.DistributedTrainer(params, wrapped)

    close(trained(unwrapping), wanted)


@on_ranks(*EVERYWHERE)
def test_gradients_can_be_changed_between_the_reduction_and_the_update() -> None:
    net = network(1)
    trainer = hvd.DistributedTrainer(net.collect_params(), "sgd", {"learning_rate": 1.0})
    (x, y), before = batches()[0], parameters(net)
    with autograd.record():
        loss = gluon.loss.L2Loss()(net(mx.nd.array(own_rows(x))), mx.nd.array(own_rows(y)))
    loss.backward()
    local = {name: one.grad().asnumpy() for name, one in net.collect_params().items()}
    trainer.allreduce_grads()
    every = hvd.allgather_object(local)
    sums = {name: sum(one[name] for one in every) for name in local}
    close({name: one.grad().asnumpy() for name, one in net.collect_params().items()}, sums)
    trainer.update(ROWS)
    wanted = {n: before[n] - sums[n] / (ROWS * hvd.size()) for n in before}
    close(parameters(net), wanted)


@on_ranks(2)
def test_frozen_parameters_are_not_reduced() -> None:
    net = network(1)
    frozen = next(iter(net.collect_params().values()))
    frozen.grad_req = "null"
    before = frozen.data().asnumpy()
    trainer = hvd.DistributedTrainer(net.collect_params(), "sgd", SGD)
    x, y = batches()[0]
    step(net, trainer, own_rows(x), own_rows(y))
    np.testing.assert_array_equal(frozen.data().asnumpy(), before)


@on_ranks(3)
def test_training_on_a_process_set_leaves_other_ranks_alone() -> None:
    pair = hvd.add_process_set([0, 2])
    net = network(1)
    trainer = hvd.DistributedTrainer(
        net.collect_params(), "sgd", {"learning_rate": 1.0}, process_set=pair
    )
    before, own = parameters(net), (hvd.rank() + 1) ** 2  # no mean of some ranks is that of others
    with autograd.record():
        loss = sum((one.data() * own).sum() for one in net.collect_params().values())
    loss.backward()
    trainer.step(1)
    step_of_all = 5.0 if pair.included() else own
    close(parameters(net), {name: values - step_of_all for name, values in before.items()})
    inner = mx.optimizer.create("sgd", learning_rate=1.0)
    optimizer = hvd.DistributedOptimizer(inner, process_set=pair)
    weight, gradient = mx.nd.zeros((2,)), mx.nd.ones((2,)) * own
    optimizer.update(0, weight, gradient, optimizer.create_state(0, weight))
    same(weight, [-step_of_all] * 2)
    hvd.remove_process_set(pair)


@on_ranks(*EVERYWHERE)
def test_parameters_without_a_shape_are_broadcast_when_they_get_one() -> None:
    mx.random.seed(hvd.rank())
    net = gluon.nn.HybridSequential(prefix="deferred_")
    with net.name_scope():
        net.add(gluon.nn.Dense(4), gluon.nn.BatchNorm(), gluon.nn.Dense(2, in_units=4))
    net.initialize(mx.init.Normal(1.0))
    for _ in range(2):
        hvd.broadcast_parameters(net.collect_params(), root_rank=hvd.size() - 1)
    trainer = hvd.DistributedTrainer(net.collect_params(), "sgd", SGD)
    for _ in range(2):
        step(net, trainer, np.ones((2, 3), np.float32), np.ones((2, 2), np.float32))
    every = hvd.allgather_object(parameters(net))
    for one in every[1:]:
        close(one, every[0], 0)
    net.initialize(mx.init.Normal(1.0), force_reinit=True)  # is not broadcast any more


@on_ranks(*EVERYWHERE)
def test_parameters_can_be_a_dict_of_arrays() -> None:
    own = {"b": mine((2,)), "a": mine((3,), "int32")}
    hvd.broadcast_parameters(own, root_rank=hvd.size() - 1)
    same(own["b"], value(hvd.size() - 1, (2,)))
    same(own["a"], value(hvd.size() - 1, (3,)), "int32")
    for wrong in ([mine((2,))], {"a": 3}, None):
        with pytest.raises(ValueError, match="broadcast_parameters"):
            hvd.broadcast_parameters(wrong)


@on_ranks(2)
def test_parameters_that_were_used_without_training_are_broadcast() -> None:
    """MXNet keeps the weights of a convolution in a layout of oneDNN then."""
    mx.random.seed(hvd.rank())
    net = gluon.nn.Conv2D(32, 3, in_channels=16, prefix="conv_")
    net.initialize(mx.init.Normal(1.0))
    net.hybridize(static_alloc=True, static_shape=True)
    images = mx.nd.ones((2, 16, 8, 8))
    for _ in range(3):
        net(images)
    hvd.broadcast_parameters(net.collect_params(), root_rank=0)
    one, other = hvd.allgather_object([parameters(net), net(images).asnumpy()])
    close(one[0], other[0], 0)
    np.testing.assert_array_equal(one[1], other[1])


def module(seed: int, rows: int) -> Any:
    mx.random.seed(seed)
    hidden = mx.sym.FullyConnected(mx.sym.var("data"), num_hidden=8, name="hidden")
    active = mx.sym.Activation(hidden, act_type="relu")
    out = mx.sym.FullyConnected(active, num_hidden=1, name="out")
    loss = mx.sym.LinearRegressionOutput(out, mx.sym.var("label"), name="loss")
    made = mx.mod.Module(loss, data_names=["data"], label_names=["label"])
    made.bind([("data", (rows, 5))], [("label", (rows, 1))])
    made.init_params(mx.init.Xavier())
    return made


def fit(made: Any, every: list[tuple[Any, Any]]) -> dict[str, Any]:
    for x, y in every:
        batch = mx.io.DataBatch([mx.nd.array(x)], [mx.nd.array(y)])
        made.forward(batch, is_train=True)
        made.backward()
        made.update()
    return {name: one.asnumpy() for name, one in made.get_params()[0].items()}


@on_ranks(*EVERYWHERE)
def test_a_module_trains_like_one_process_on_all_rows() -> None:
    rows = ROWS * hvd.size()
    one = module(1, rows)
    options = {"rescale_grad": 1.0 / rows, **SGD}
    one.init_optimizer(kvstore=None, optimizer=mx.optimizer.create("sgd", **options))
    wanted = fit(one, batches())
    for groups in (0, 2):
        own = module(1 + hvd.rank(), ROWS)
        arguments, auxiliary = own.get_params()
        hvd.broadcast_parameters(arguments)
        own.set_params(arguments, auxiliary)
        optimizer = mx.optimizer.create("sgd", rescale_grad=1.0 / ROWS, **SGD)
        optimizer = hvd.DistributedOptimizer(optimizer, 2.0, num_groups=groups)
        own.init_optimizer(kvstore=None, optimizer=optimizer)
        close(fit(own, [(own_rows(x), own_rows(y)) for x, y in batches()]), wanted)


@on_ranks(2)
def test_the_optimizer_is_the_one_that_it_wraps() -> None:
    inner = mx.optimizer.create("sgd", learning_rate=0.5, wd=0.5, multi_precision=True)
    optimizer = hvd.DistributedOptimizer(inner)
    assert isinstance(optimizer, mx.optimizer.Optimizer)
    optimizer.set_learning_rate(0.25)
    optimizer.rescale_grad = 0.5
    optimizer.set_lr_mult({0: 2.0})
    optimizer.set_wd_mult({0: 0.0})
    assert (inner.lr, optimizer.learning_rate, inner.rescale_grad) == (0.25, 0.25, 0.5)
    weight, gradient = array([1.0, 1.0], "float16"), mine((2,), "float16")
    state = optimizer.create_state_multi_precision(0, weight)
    optimizer.update_multi_precision(0, weight, gradient, state)
    mean = np.mean([value(rank, (2,)) for rank in range(2)], 0)
    np.testing.assert_allclose(weight.asnumpy(), 1 - 0.25 * 2 * 0.5 * mean)
    weight, state = array([1.0, 1.0]), optimizer.create_state(1, array([1.0, 1.0]))
    optimizer.update(1, weight, mine((2,)), state)
    np.testing.assert_allclose(weight.asnumpy(), 1 - 0.25 * (0.5 * mean + 0.5))
    again = pickle.loads(pickle.dumps(optimizer))
    assert isinstance(again, hvd.DistributedOptimizer) and again.lr == 0.25
    with pytest.raises(ValueError, match="expected an mx"):
        hvd.DistributedOptimizer("sgd")


@on_ranks(2)
def test_gluons_trainer_takes_a_distributed_optimizer() -> None:
    def make(params: Any) -> Any:
        optimizer = hvd.DistributedOptimizer(mx.optimizer.create("sgd", **SGD))
        return gluon.Trainer(params, optimizer, kvstore=None)

    close(trained(make), expected())


@on_ranks(1)
def test_what_the_trainer_cannot_do_is_a_value_error() -> None:
    sparse = gluon.nn.Embedding(3, 2, sparse_grad=True)
    sparse.initialize()
    double = gluon.nn.Dense(1, in_units=1)
    double.initialize(ctx=[mx.cpu(0), mx.cpu(1)])
    for net, match in [(sparse, "is sparse"), (double, "on several devices")]:
        with pytest.raises(ValueError, match=match):
            hvd.DistributedTrainer(net.collect_params(), "sgd")
    params = network(1).collect_params()
    for options, match in [
        ({"compression": 3}, "compression must be"),
        ({"num_groups": -1}, "num_groups must be"),
        ({"prefix": 3}, "prefix must be"),
        ({"gradient_predivide_factor": 0}, "must not be"),
    ]:
        with pytest.raises(ValueError, match=match):
            hvd.DistributedTrainer(params, "sgd", **options)
