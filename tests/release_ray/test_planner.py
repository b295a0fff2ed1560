"""The loop of one task, over synthetic spaces in place of a compiler and hardware."""

import numpy as np
import pytest
from search_fakes import FakeSketches, known, planner, refuses_a_third, refuses_none, settings

import policies
from release_ray.core.statuses import Status
from release_ray.planner import Observation, _stable_hash
from release_ray.testing import synthetic


def observed(plan, space, task, **more):
    """What hardware would say of a plan's candidates."""
    points = np.array([c.point for c in plan.candidates], np.int32).reshape(-1, space.width)
    fitness = np.maximum(task.fitness(points), 0.01)
    return [
        Observation(c.sketch, c.decisions, **({"status": Status.OK, "latency_s": 1e-4 / f} | more))
        for c, f in zip(plan.candidates, fitness, strict=True)
    ]


@pytest.fixture
def task():
    return synthetic.two_sketches()


@pytest.fixture
def policy():
    return policies.create("random", settings().agent)


def test_the_first_plan_is_random_and_canonical(task):
    made = planner(task, settings())
    plan = made.plan(16, None)
    assert plan.round == 0
    assert len(plan.candidates) == 16
    assert {c.policy for c in plan.candidates} == {"random"}
    for candidate in plan.candidates:
        assert not refuses_a_third(candidate.point)
        again = made.sketches.apply(candidate.point)
        assert np.array_equal(again.point, candidate.point)
        assert candidate.decisions == made.sketches.decisions(candidate.point)
        assert candidate.sketch == candidate.point[0]
    assert plan.refused
    assert {r.message for r in plan.refused} == {"refused"}


@pytest.mark.parametrize("share", [0.0, 0.25, 1.0])
def test_the_first_plan_begins_with_what_is_known_of_like_operators(task, share):
    chosen = settings(first_random=share, sampler="greedy")
    made = planner(task, chosen, prior=known(task), refuses=refuses_none)
    plan = made.plan(16, policies.create("genetic", chosen.agent), label="genetic")
    labels = [candidate.policy for candidate in plan.candidates]
    assert len(labels) == 16
    # The sampler may leave one or two of its share to chance.
    assert 16 - 16 * share - 2 <= labels.count("genetic") <= 16 - 16 * share
    if share < 1:
        proposed = [c.point for c in plan.candidates if c.policy == "genetic"]
        drawn = task.space.random(np.random.default_rng(0), 100)
        assert task.fitness(np.array(proposed)).mean() > task.fitness(drawn).mean() + 0.1


def test_where_others_led_the_start_chance_fades_as_the_task_is_measured(task):
    chosen = settings(sampler={"name": "greedy", "epsilon": 0.0})
    led = planner(task, chosen, prior=known(task), refuses=refuses_none)
    alone = planner(
        task, settings(sampler={"name": "greedy", "epsilon": 0.0}, cost_model={"prior": 0})
    )
    policy = policies.create("genetic", chosen.agent)
    shares = []
    for made in (led, alone):
        by_round = []
        for _ in range(7):
            plan = made.plan(16, policy, label="genetic")
            labels = [candidate.policy for candidate in plan.candidates]
            by_round.append(labels.count("random") / len(labels))
            made.absorb(observed(plan, made.space, task))
        shares.append(by_round)
    assert shares[0][:4] == [8 / 16, 6 / 16, 4 / 16, 2 / 16]
    assert shares[0][4:] == [0.0, 0.0, 0.0]
    assert shares[1] == [1.0, *[0.0] * 6]


@pytest.mark.parametrize("more", [{"cost_model": {"prior": 0}}, {}])
def test_with_too_little_known_the_first_plan_is_random(task, more):
    few = known(task, 10) if not more else known(task)
    made = planner(task, settings(**more), prior=few)
    plan = made.plan(16, policies.create("genetic", settings().agent))
    assert {candidate.policy for candidate in plan.candidates} == {"random"}


@pytest.mark.parametrize("sampler", ["adaptive", "greedy"])
def test_nothing_is_proposed_twice(task, policy, sampler):
    made = planner(task, settings(sampler=sampler))
    seen: set[tuple[int, str]] = set()
    for number in range(6):
        plan = made.plan(16, policy if number else None)
        assert plan.candidates
        for one in (*plan.candidates, *plan.refused):
            assert (one.sketch, one.decisions) not in seen
            seen.add((one.sketch, one.decisions))
        made.absorb(observed(plan, made.space, task))
    applied = made.sketches.applied
    assert len(applied) == len(set(applied))


def test_a_policy_s_candidates_carry_its_name(task, policy):
    made = planner(task, settings(sampler={"name": "greedy", "epsilon": 0.0}))
    made.absorb(observed(made.plan(16, None), made.space, task))
    plan = made.plan(16, policy)
    assert {c.policy for c in plan.candidates} == {"random"}  # the policy of that name
    made = planner(task, settings(policy="ppo", sampler={"name": "greedy", "epsilon": 0.0}))
    made.absorb(observed(made.plan(16, None), made.space, task))
    assert {c.policy for c in made.plan(16, policy).candidates} == {"ppo"}


def test_a_plan_depends_on_seed_task_round_and_results_alone(task, policy):
    def plans(name="task", seed=0):
        made = planner(task, settings(seed=seed), name=name)
        found = []
        for number in range(3):
            plan = made.plan(12, policy if number else None)
            made.absorb(observed(plan, made.space, task))
            found.append(tuple(c.decisions for c in plan.candidates))
        return found

    assert plans() == plans()
    assert plans(name="other")[0] != plans()[0]
    assert plans(seed=1)[0] != plans()[0]


def test_results_guide_the_search(task):
    """After a few rounds the model's choice is better than chance."""
    chosen = settings(agent={"model_calls": 2000}, cost_model={"trees": 100})
    policy = policies.create("random", chosen.agent)
    made = planner(task, chosen, refuses=refuses_none)
    means = []
    for number in range(5):
        plan = made.plan(16, policy if number else None)
        made.absorb(observed(plan, made.space, task))
        means.append(task.fitness(np.array([c.point for c in plan.candidates])).mean())
    assert means[-1] > 2 * means[0]


def test_fewer_candidates_than_the_limit_where_the_sampler_says_so(task, policy):
    made = planner(task, settings(sampler={"name": "adaptive", "min_clusters": 3}))
    made.absorb(observed(made.plan(16, None), made.space, task))
    plan = made.plan(16, policy)
    assert 3 <= len(plan.candidates) <= 16
    assert plan.clusters == len(plan.candidates)


@pytest.mark.parametrize("with_policy", [False, True])
def test_a_plan_of_one_finds_one_though_most_are_refused(task, policy, with_policy):
    def nearly_all(point):
        return int(point.sum()) % 20 != 0

    made = planner(task, settings(), refuses=nearly_all)
    if with_policy:
        made.absorb(observed(made.plan(1, None), made.space, task))
    for _ in range(5):
        assert len(made.plan(1, policy if with_policy else None).candidates) == 1


def test_a_space_in_which_everything_is_refused_ends(task):
    made = planner(task, settings(), refuses=lambda point: True)
    plan = made.plan(4, None)
    assert plan.candidates == ()
    assert len(plan.refused) > 100


@pytest.mark.parametrize("sampler", ["adaptive", "greedy"])
def test_a_small_space_is_exhausted_and_then_empty(policy, sampler):
    task = synthetic.tiny()
    made = planner(task, settings(sampler=sampler), refuses=refuses_none)
    found = []
    for number in range(4):
        plan = made.plan(2, policy if number else None)
        made.absorb(observed(plan, made.space, task))
        found += [c.decisions for c in plan.candidates]
    assert len(found) == len(set(found))
    # Half of the six configurations are aliases of the others.
    assert len(found) == 3
    assert made.exhausted
    assert made.plan(2, policy).candidates == ()


def test_failures_and_lost_devices(task):
    made = planner(task, settings())
    first = made.plan(8, None)
    seen = observed(first, made.space, task)
    failed = [Observation(o.sketch, o.decisions, Status.BUILD_ERROR, None) for o in seen[:3]]
    lost = [Observation(o.sketch, o.decisions, Status.DEVICE_LOST, None) for o in seen[3:5]]
    slow = [Observation(o.sketch, o.decisions, Status.SLOW, 1.0) for o in seen[5:6]]
    made.absorb([*failed, *lost])
    assert made.best_s is None
    made.absorb([*slow, *seen[6:]])
    assert made.best_s == min(o.latency_s for o in seen[6:])
    made._settle()
    state = made._state(np.random.default_rng(0), made._kin(()))
    # A lost device says nothing of the candidate; a failure is a fitness of 0.
    assert len(state.measured) == 6
    assert list(state.fitness[:3]) == [0, 0, 0]
    assert state.fitness[3] == pytest.approx(made.best_s / 1.0)
    assert state.fitness.max() == 1
    # Nor is any of them measured again.
    assert len(state.visited) >= 8


def experienced(task, count=48, name="elsewhere"):
    made = planner(task, settings(), name=name)
    made.absorb(observed(made.plan(count, None), made.space, task))
    return made


def test_a_first_round_takes_half_from_what_like_tasks_know(task, policy):
    chosen = settings(policy="ppo", sampler={"name": "greedy", "epsilon": 0.0})
    plan = planner(task, chosen).plan(16, policy, [experienced(task)])
    origins = [candidate.policy for candidate in plan.candidates]
    assert origins == ["ppo"] * 8 + ["random"] * 8
    points = np.array([candidate.point for candidate in plan.candidates])
    fitness = task.fitness(points)
    assert fitness[:8].mean() > 1.2 * fitness[8:].mean()


def test_a_first_round_is_random_where_too_little_or_nothing_alike_is_known(task, policy):
    chosen = settings(policy="ppo", cost_model={"transfer": 64})
    for others in ([experienced(task, 8)], [experienced(synthetic.bowl())], []):
        plan = planner(task, chosen).plan(16, policy, others)
        assert {candidate.policy for candidate in plan.candidates} == {"random"}
    alone = settings(policy="ppo", cost_model={"transfer": 0})
    plan = planner(task, alone).plan(16, policy, [experienced(task)])
    assert {candidate.policy for candidate in plan.candidates} == {"random"}


def test_what_like_tasks_know_is_evenly_chosen_and_relative_to_their_own_best(task):
    others = [experienced(task, 40, "one"), experienced(task, 40, "two")]
    made = planner(task, settings(cost_model={"transfer": 41}))
    features, fitness = made._kin(others)
    assert features.shape == (41, made._kin(())[0].shape[1])
    assert len(fitness) == 41
    everything = np.concatenate([other._fitness() for other in others])
    assert np.isin(fitness, everything).all()
    assert (fitness[0], fitness[-1]) == (everything[0], everything[-1])
    assert all(other._fitness().max() == 1 for other in others)


def test_a_task_whose_sketches_were_never_made_teaches_nothing(task):
    idle = planner(task, settings())
    idle._made_sketches = False
    assert len(planner(task, settings())._kin([idle])[1]) == 0


def test_records_of_another_tvm_are_left_out(task, caplog):
    made = planner(task, settings())
    strange = ["[1]", "null", '["x"]', "nonsense", "[[9,9,9,9],[1,1,1],0]"]
    made.absorb(Observation(0, text, Status.OK, 1e-3) for text in strange)
    made.absorb([Observation(7, "[]", Status.OK, 1e-3)])
    assert made.plan(4, None).candidates
    assert caplog.text.count("does not fit") == len(strange) + 1


def test_a_task_of_which_only_such_records_are_known(task, policy):
    made = planner(task, settings())
    made.absorb([Observation(0, "[1]", Status.OK, 1e-3)])
    plan = made.plan(4, policy)
    assert len(plan.candidates) == 4
    made.absorb(observed(plan, made.space, task))
    assert made.plan(4, policy).candidates


def test_it_plans_before_the_sketches_are_made(task):
    made = planner(task, settings())
    del made.__dict__["sketches"]
    made._made_sketches = False
    assert not made.exhausted
    made.absorb([Observation(0, "[]", Status.OK, 1e-3)])
    assert made.best_s == 1e-3
    assert "sketches" not in made.__dict__
    made.__dict__["sketches"] = FakeSketches(task, refuses_none)


def test_the_hash_of_a_task_is_the_same_everywhere():
    assert _stable_hash("0123456789abcdef") == 11502001110939499128


def test_what_a_lost_device_was_to_measure_may_be_planned_again():
    made = planner(synthetic.tiny(), settings(), refuses=refuses_none)
    first = made.plan(100, None)
    later = planner(synthetic.tiny(), settings(), refuses=refuses_none)
    later.absorb(
        Observation(c.sketch, c.decisions, Status.DEVICE_LOST, None) for c in first.candidates
    )
    assert {c.decisions for c in later.plan(100, None).candidates} == {
        c.decisions for c in first.candidates
    }
