"""A client, workers and a supervisor of the kts46 scheduler, as the original ones are: over
Python's xmlrpc.client. Usage: kts46.py tcp://HOST:PORT"""

import datetime
import sys
import threading
import xmlrpc.client

URL = "http://" + sys.argv[1].removeprefix("tcp://") + "/RPC2"
DEFINITION = """
simulationParameters:
  duration: 10
  stepDuration: 0.5
  batchLength: 3
"""
BATCHES = 7  # of 20 steps


def connect():
    return xmlrpc.client.ServerProxy(URL, allow_none=True, use_builtin_types=True)


def fault(says, call, *args):
    try:
        answer = call(*args)
    except xmlrpc.client.Fault as f:
        assert f.faultCode == 1 and says in f.faultString, f
        return
    raise AssertionError(f"no fault that says {says!r} but {answer!r}")


def main():
    s = connect()
    assert "Treadle" in s.hello()
    fault("Couldn't get project 'none'", s.runJob, "none", "x")
    fault("is not supported", s.system.listMethods)
    fault("takes exactly 2 arguments", s.getJob)
    assert s.createProject("traffic") is None
    assert s.projectExists("traffic") is True and s.projectExists("other") is False
    for job in ("north", "süd <&>"):
        assert s.addJob("traffic", job, DEFINITION) is None
        assert s.jobExists("traffic", job) is True
        assert s.runJob("traffic", job) is None
    assert s.getJobsList("traffic") == ["north", "süd <&>"]

    # A worker dies with its task; the supervisor sees how old its last update is.
    dead = s.getJob("dead")
    assert dead["type"] == "simulation" and dead["job"] == "north" and dead["timeout"] == 5, dead
    assert isinstance(dead["lastUpdate"], datetime.datetime) and dead["lastUpdate"].microsecond == 0
    (task,) = s.getCurrentTasks()
    assert task == {"workerId": "dead", "project": "traffic", "job": "north", "lastUpdate": dead["lastUpdate"]}, task
    assert s.restartTask("dead", task["lastUpdate"] - datetime.timedelta(seconds=1)) is False
    assert s.restartTask("dead", task["lastUpdate"]) is True
    assert s.restartTask("dead", task["lastUpdate"]) is False
    fault("no current tasks", s.reportStatus, "dead", "finished", dead["lastUpdate"])

    done, failures, lock = [], [], threading.Lock()

    def work(worker):
        s = connect()
        while True:
            task = s.getJob(worker)
            if task is None:
                if all(j["done"] >= j["total"] for j in s.getServerStatus()) and not s.getCurrentTasks():
                    return
                continue
            last = s.reportStatus(worker, "working", task["lastUpdate"])
            assert last > task["lastUpdate"], (last, task)
            fault("doesn't match", s.reportStatus, worker, "finished", task["lastUpdate"])
            if len(done) % 5 == 4 and worker == "w1" and task["type"] == "simulation":
                assert s.reportStatus(worker, "abort", last) is None
                with lock:
                    done.append((task["job"], "abort"))
                continue
            with lock:
                done.append((task["job"], task["type"]))
            assert s.reportStatus(worker, "finished", last) is None

    def run(worker):
        try:
            work(worker)
        except BaseException as e:
            failures.append(e)

    threads = [threading.Thread(target=run, args=(f"w{i}",)) for i in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(60)
        assert not t.is_alive(), "a worker does not end"
    if failures:
        raise failures[0]
    for job in ("north", "süd <&>"):
        kinds = [kind for j, kind in done if j == job and kind != "abort"]
        assert kinds == ["simulation"] * BATCHES + ["statistics"], (job, kinds)
        assert "(20/20)" in s.getJobStatus("traffic", job), s.getJobStatus("traffic", job)
    for j in s.getServerStatus():
        flags = [j[f] for f in ("basicStatistics", "idleTimes", "throughput", "fullStatistics")]
        assert j["done"] == 20 and j["totalSteps"] == 20.0 and flags == [True] * 4, j
    statistics = s.getJobStatistics("traffic", "north", False)
    assert statistics["average"] is None and statistics["idleTimes"] == {"values": None}, statistics
    assert s.getJobStatistics("traffic", "none", False) == {}
    assert s.runJob("traffic", "north") is None and s.getJob("w") is None
    assert s.deleteProject("traffic") is None and s.getServerStatus() == []


main()
