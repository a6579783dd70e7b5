"""Variables and objects of one rank on all of them; elastic states."""

from __future__ import annotations

import resource
import threading
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tf_ranks import EVERYWHERE, on_ranks
from tf_reference import process_sets

import horovod.tensorflow as hvd
from horovod.common._state_files import commit_in, read_newest, write_part
from horovod.common._state_parts import joined, part_of
from horovod.common.exceptions import HorovodInternalError

v1 = tf.compat.v1


@on_ranks(*EVERYWHERE)
def test_broadcast_variables_takes_every_type() -> None:
    rank, root = hvd.rank(), hvd.size() - 1
    types = [tf.float32, tf.int64, tf.bool, tf.complex64, tf.uint32, tf.float32, tf.bfloat16]
    for inplace in (False, True):
        variables = [tf.Variable(tf.cast([rank, 1, 0], dtype)) for dtype in types]
        variables.append(tf.Variable(float(rank)))
        hvd.broadcast_variables(variables, root, inplace=inplace)
        for variable in variables[:-1]:
            assert (
                variable.numpy().tolist() == tf.cast([root, 1, 0], variable.dtype).numpy().tolist()
            )
        assert variables[-1].numpy() == root
    first, second = tf.Variable([rank]), tf.Variable([rank + 1])
    values = hvd.broadcast_([first, second], 0, name="pair")
    assert [int(v[0]) for v in values] == [0, 1] and first.numpy() == 0


def texts(rank: int) -> list[Any]:
    """Of other lengths on each rank: empty ones, with a zero byte, and no string at all."""
    some = tf.constant([b"a" * rank, b"", b"\0b\0"])
    return [some, tf.constant(f"on {rank}" * (rank + 1)), tf.zeros([0, 2], tf.string)]


@on_ranks(*EVERYWHERE)
def test_broadcast_variables_takes_strings_in_every_mode() -> None:
    rank, root = hvd.rank(), hvd.size() - 1

    def check(values: Any) -> None:
        some, one, none, number = values
        assert some.tolist() == [b"a" * root, b"", b"\0b\0"] and none.shape == (0, 2)
        assert one == b"on %d" % root * (root + 1) and number == root

    def variables() -> list[Any]:
        return [tf.Variable(text) for text in [*texts(rank), tf.constant(float(rank))]]

    eager, called = variables(), variables()
    hvd.broadcast_variables(eager, root)
    check([one.numpy() for one in eager])
    check([one.numpy() for one in hvd.broadcast_(variables(), root)])

    @tf.function
    def send() -> None:
        hvd.broadcast_variables(called, root)

    send()
    check([one.numpy() for one in called])
    with tf.Graph().as_default(), v1.Session() as session:
        made = variables()
        session.run(v1.global_variables_initializer())
        session.run(hvd.broadcast_global_variables(root))
        check(session.run(made))
    odd = tf.Variable(tf.cast([1], "int4"), name="odd")
    with pytest.raises(ValueError, match=r"odd.* is of type int4, which cannot be sent"):
        hvd.broadcast_variables([odd], root)


@on_ranks(2)
def test_shapes_of_string_variables_are_equal_unless_they_are_open() -> None:
    rank, root = hvd.rank(), hvd.size() - 1
    same = tf.Variable(["kept"])
    differs = tf.Variable(["a"] * (1 + rank))
    for run in (lambda f: f, tf.function):
        send = run(lambda: hvd.broadcast_([same, differs], root, name="texts"))
        with pytest.raises(tf.errors.FailedPreconditionError) as error:
            send()
        assert "texts_string_shapes" in str(error.value)
        assert "tensor 3 of 3: rank 0 has [1], rank 1 has [2]" in str(error.value)
    assert same.numpy().tolist() == [b"kept"]
    for run in (lambda f: f, tf.function):
        texts_of_all = tf.Variable([["b", f"{rank}"]] * (1 + rank), shape=[None, 2])
        whatever = tf.Variable(tf.fill([rank], f"{rank}"), shape=tf.TensorShape(None))
        send = run(lambda v=(texts_of_all, whatever): hvd.broadcast_(v, root))
        send()
        assert texts_of_all.numpy().tolist() == [[b"b", b"1"]] * (1 + root)
        assert whatever.numpy().tolist() == [b"1"] * root


@on_ranks(2)
def test_long_strings_take_little_more_memory_than_their_bytes() -> None:
    length = 1 << 24
    for run in (lambda f: f, tf.function):
        text = tf.Variable(bytes(range(256)) * (length // 256 if hvd.rank() == 0 else 0))
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        run(lambda text=text: tf.shape(hvd.broadcast_([text], 0)[0]))()
        more = 1024 * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
        assert text.numpy() == bytes(range(256)) * (length // 256)
        assert more < 16 * length, more


@on_ranks(*EVERYWHERE)
def test_broadcast_variables_in_a_function_and_on_a_set() -> None:
    variable = tf.Variable([float(hvd.rank())])

    @tf.function
    def send() -> None:
        hvd.broadcast_variables([variable], 0)

    send()
    assert variable.numpy() == 0
    others = [tf.Variable([1.0, 2.0]), tf.Variable(3), tf.Variable(4)]
    for inplace in (False, True):

        @tf.function
        def send_all(inplace: bool = inplace) -> None:
            hvd.broadcast_variables([variable, *others], 0, inplace=inplace)

        graph = send_all.get_concrete_function().graph
        sent = [op for op in graph.get_operations() if op.type.startswith("Horovod")]
        assert [(op.type, op.get_attr("T")) for op in sent] == [
            ("HorovodGroupedBroadcast", tf.float32),
            ("HorovodGroupedBroadcast", tf.int32),
        ]
    with process_sets([0, 1]) as sets:
        if sets and sets[0].included():
            variable.assign([float(hvd.rank())])
            hvd.broadcast_variables([variable], 1, process_set=sets[0])
            assert variable.numpy() == 1


@on_ranks(*EVERYWHERE)
def test_global_variables_of_v1_graphs() -> None:
    with pytest.raises(RuntimeError, match="broadcast_variables"):
        hvd.broadcast_global_variables(0)
    for use_resource in (False, True):
        with tf.Graph().as_default():
            variable = tf.compat.v1.get_variable(
                "v",
                initializer=tf.constant([float(hvd.rank()), 7.0]),
                use_resource=use_resource,
            )
            hook = hvd.BroadcastGlobalVariablesHook(0)
            with tf.compat.v1.train.MonitoredTrainingSession(hooks=[hook]) as session:
                assert session.run(variable).tolist() == [0, 7]
        with tf.Graph().as_default(), tf.compat.v1.Session() as session:
            variable = tf.compat.v1.get_variable("v", initializer=tf.constant(float(hvd.rank())))
            session.run(tf.compat.v1.global_variables_initializer())
            session.run(hvd.broadcast_global_variables(hvd.size() - 1))
            assert session.run(variable) == hvd.size() - 1


@on_ranks(*EVERYWHERE)
def test_broadcast_in_place_gives_variables_and_their_values() -> None:
    rank, root = hvd.rank(), hvd.size() - 1
    made_from = tf.constant([float(rank)] * 3)
    first, second = tf.Variable(made_from), tf.Variable(7.0 + rank)
    before = first.read_value()

    def check(values: Any, variables: Any) -> None:
        for found in (values, variables):
            assert [np.ravel(one).tolist() for one in found] == [[root] * 3, [7.0 + root]]

    check(hvd.broadcast_([first, second], root), [first, second])
    for other in (before, made_from):  # they may share the memory that the variable had
        assert other.numpy().tolist() == [rank] * 3
    first.assign(made_from)
    second.assign(7.0 + rank)
    check(tf.function(lambda: hvd.broadcast_([first, second], root))(), [first, second])
    for use_resource in (False, True):
        with tf.Graph().as_default(), tf.compat.v1.Session() as session:
            pair = [
                tf.compat.v1.get_variable(name, initializer=start, use_resource=use_resource)
                for name, start in (("a", tf.fill([3], float(rank))), ("b", 7.0 + rank))
            ]
            sent = hvd.broadcast_(pair, root)
            session.run(tf.compat.v1.global_variables_initializer())
            check(session.run(sent), session.run(pair))
    with tf.Graph().as_default():
        kinds = [
            tf.compat.v1.get_variable(f"v{use}", [1], use_resource=use) for use in (False, True)
        ]
        with pytest.raises(ValueError, match="one kind"):
            hvd.broadcast_(kinds, root)


@on_ranks(*EVERYWHERE)
def test_objects_travel_without_a_graph() -> None:
    rank, size = hvd.rank(), hvd.size()
    mine = {"rank": rank, "numbers": np.arange(rank), "text": "x" * 1000 * rank}
    last = hvd.broadcast_object(mine, size - 1)
    assert last["rank"] == size - 1 and len(last["numbers"]) == size - 1
    every = hvd.allgather_object(mine if rank else None)
    assert [one and one["rank"] for one in every] == [None, *range(1, size)]
    assert hvd.broadcast_object_fn(0)(rank) == 0
    with pytest.raises(HorovodInternalError if rank else TypeError, match="pickle"):
        hvd.broadcast_object(threading.Lock(), 0)
    with tf.Graph().as_default():
        assert hvd.broadcast_object(rank, 0, name="in_a_graph") == 0
    with process_sets([0, 1]) as sets:
        if sets and sets[0].included():
            assert hvd.allgather_object(rank, process_set=sets[0]) == [0, 1]


@on_ranks(2)
def test_an_object_that_cannot_be_pickled_is_an_error_on_all_ranks() -> None:
    class Stubborn:
        def __reduce__(self) -> Any:
            raise TypeError("no")

    expect = TypeError if hvd.rank() == 0 else HorovodInternalError
    with pytest.raises(expect):
        hvd.broadcast_object(Stubborn(), 0)
    with pytest.raises(expect):
        hvd.allgather_object(Stubborn() if hvd.rank() == 0 else 1)
    assert hvd.broadcast_object(hvd.rank(), 1) == 1


@on_ranks(1, 2)
def test_elastic_state_of_variables() -> None:
    rank = hvd.rank()
    variable = tf.Variable([float(rank)])
    state = hvd.elastic.TensorFlowState([variable], epoch=rank)
    variable.assign([5.0])
    state.epoch = 9
    state.restore()
    assert variable.numpy() == rank and state.epoch == rank
    state.sync()
    assert variable.numpy() == 0 and state.epoch == 0


@on_ranks(1, 2)
def test_what_an_elastic_state_saves_shares_no_memory_with_the_variables() -> None:
    variable = tf.Variable([1.0, 2.0, 3.0])
    state = hvd.elastic.TensorFlowState([variable])
    for saved in state._saved_values:
        assert not np.shares_memory(saved, variable.numpy())
    variable.assign_add([1.0, 1.0, 1.0])
    hvd.broadcast_variables([variable], 0, inplace=True)
    state.restore()
    assert variable.numpy().tolist() == [1.0, 2.0, 3.0]


@on_ranks(1, 2)
def test_a_sampler_in_an_elastic_state_stays_the_same_object() -> None:
    sampler = hvd.elastic.ElasticSampler(12, shuffle=False)
    state = hvd.elastic.TensorFlowState([tf.Variable(1.0)], sampler=sampler)
    sampler.record_batch(0, 1)
    state.save()
    sampler.record_batch(1, 1)
    state.restore()
    assert state.sampler is sampler and next(iter(sampler)) == hvd.size() + hvd.rank()
    state.sync()
    assert sampler.processed_num == hvd.size()


@on_ranks(1, 2)
def test_elastic_state_of_a_session() -> None:
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        variable = tf.compat.v1.get_variable("v", initializer=tf.constant(float(hvd.rank() + 1)))
        session.run(tf.compat.v1.global_variables_initializer())
        state = hvd.elastic.TensorFlowState(session=session, step=3)
        variable.load(9.0, session)
        state.restore()
        assert session.run(variable) == hvd.rank() + 1
        state.sync()
        assert session.run(variable) == 1 and state.step == 3


@on_ranks(1, 2)
def test_elastic_state_of_a_keras_model() -> None:
    model = tf.keras.Sequential([tf.keras.layers.Dense(2)])
    with pytest.raises(ValueError, match="build"):
        hvd.elastic.TensorFlowKerasState(model)
    model.build((None, 3))
    model.compile(tf.keras.optimizers.Adam(0.1 * (hvd.rank() + 1)), "mse")
    state = hvd.elastic.TensorFlowKerasState(model, batch=0)
    before = [weight.copy() for weight in model.get_weights()]
    model.fit(np.ones((4, 3)), np.ones((4, 2)), verbose=0)
    state.batch = 4
    assert not np.allclose(model.get_weights()[0], before[0])
    state.restore()
    assert state.batch == 0
    for found, wanted in zip(model.get_weights(), before, strict=True):
        np.testing.assert_array_equal(found, wanted)
    state.sync()
    every = hvd.allgather_object([weight.tolist() for weight in model.get_weights()])
    assert all(one == every[0] for one in every)


@on_ranks(1, 2)
def test_elastic_run_takes_our_unknown_errors_for_lost_ranks() -> None:
    state = hvd.elastic.TensorFlowState([tf.Variable(1.0)], tries=0)
    failing = ["Allreduce", "GroupedAllgather", "Alltoall", "Reducescatter", "Barrier", "Join"]

    @hvd.elastic.run
    def train(state: Any) -> str:
        if failing:
            raise tf.errors.UnknownError(None, None, f"Horovod{failing.pop()}: rank 7 was lost")
        return "done"

    assert train(state) == "done" and not failing
    if hvd.size() > 1:  # the job still has dynamic sets
        assert hvd.remove_process_set(hvd.add_process_set([0]))


@on_ranks(1)
def test_references_stand_for_variables() -> None:
    one, other = tf.Variable(1.0), tf.Variable(1.0)
    of_keras = tf.keras.layers.Dense(1)
    of_keras.build((None, 1))
    references = hvd.util.vars_to_refs([one, [other, of_keras.kernel]])
    assert references == hvd.util.vars_to_refs((one, (other, of_keras.kernel)))
    assert len({references, hvd.util.vars_to_refs([other, [one]])}) == 2
    found = hvd.util.refs_to_vars(references)
    assert found[0] is one and found[1][0] is other
    assert found[1][1] is getattr(of_keras.kernel, "value", None) or found[1][1] is of_keras.kernel


@on_ranks(1)
def test_variables_from_the_state_folder_are_those_that_were_saved() -> None:
    def fresh(number: int) -> Any:
        variables = [
            tf.Variable([[number, 2]]),
            tf.Variable(0.5 * number),
            tf.Variable("a" * number),
        ]
        sampler = hvd.elastic.ElasticSampler(10)
        return hvd.elastic.TensorFlowState(variables, sampler=sampler, step=number)

    state, other = fresh(7), fresh(0)
    state.sampler.record_batch(0, 3)
    state.commit()
    with TemporaryDirectory() as folder:
        commit = commit_in(Path(folder), 1, 1)
        for part in range(2):
            write_part(commit, part, 2, part_of(state.stored(), part, 2).content)
        _, stored = read_newest(Path(folder), joined) or (None, None)
    assert stored is not None
    other.load_stored(stored)
    assert [variable.numpy().tolist() for variable in other.variables[:2]] == [[[7, 2]], 3.5]
    assert other.variables[2].numpy() == b"a" * 7
    assert (other.step, other.sampler.processed_num) == (7, 3)
    with pytest.raises(ValueError, match="shapes of the variables are"):
        hvd.elastic.TensorFlowState([tf.Variable([1.0])]).load_stored(stored)
