"""scripts/kubernetes.yaml and scripts/hosts.example. Skipped (77) if Python has no YAML module."""
import sys

from program import *
from program import PROGRAM

try:
    import yaml
except ImportError:
    print("skipped: there is no module yaml (package python3-yaml)")
    sys.exit(77)

# Fields of kubeflow.org/v2beta1 and of pods that the manifest uses, with their types.
SPEC = {"launcherCreationPolicy": str, "mpiImplementation": str, "mpiReplicaSpecs": dict, "runLauncherAsWorker": bool, "runPolicy": dict,
        "slotsPerWorker": int, "sshAuthMountPath": str}
RUN_POLICY = {"activeDeadlineSeconds": int, "backoffLimit": int, "cleanPodPolicy": str, "managedBy": str, "schedulingPolicy": dict,
              "suspend": bool, "ttlSecondsAfterFinished": int}
REPLICAS = {"replicas": int, "restartPolicy": str, "template": dict}
POD = {"affinity": dict, "containers": list, "volumes": list}
CONTAINER = {"args": list, "command": list, "image": str, "name": str, "resources": dict, "volumeMounts": list}


class Kubernetes(ProgramTest):
    def setUp(self):
        super().setUp()
        self.job = yaml.safe_load((SCRIPTS / "kubernetes.yaml").read_text())
        self.replicas = self.job["spec"]["mpiReplicaSpecs"]

    def container(self, role):
        return self.replicas[role]["template"]["spec"]["containers"][0]

    def check(self, fields, known):
        for field, value in fields.items():
            self.assertIs(type(value), known.get(field), field)

    def test_fields(self):
        self.assertEqual((self.job["apiVersion"], self.job["kind"]), ("kubeflow.org/v2beta1", "MPIJob"))
        self.assertEqual(list(self.replicas), ["Launcher", "Worker"])
        self.check(self.job["spec"], SPEC)
        self.check(self.job["spec"]["runPolicy"], RUN_POLICY)
        self.assertIn(self.job["spec"]["runPolicy"]["cleanPodPolicy"], ("None", "Running", "All"))
        for role, replicas in self.replicas.items():
            self.check(replicas, REPLICAS)
            self.assertIn(replicas["restartPolicy"], ("Never", "OnFailure"))
            self.check(replicas["template"]["spec"], POD)
            self.check(self.container(role), CONTAINER)
            for word in self.container(role)["command"] + self.container(role).get("args", []):
                self.assertIs(type(word), str)

    def test_numbers_and_places_that_belong_together(self):
        slots, workers = self.job["spec"]["slotsPerWorker"], self.replicas["Worker"]["replicas"]
        launch = self.container("Launcher")["command"]
        self.assertEqual(int(launch[launch.index("-np") + 1]), slots * workers)
        self.assertEqual(self.container("Worker")["resources"]["limits"]["nvidia.com/gpu"], slots)
        self.assertEqual(self.container("Worker")["image"], self.container("Launcher")["image"])
        self.assertIn(f"-t {self.container('Worker')['image'].split(':')[0]} ", (SCRIPTS / "Containerfile").read_text())
        mounts = {mount["name"]: mount["mountPath"] for mount in self.container("Worker")["volumeMounts"]}
        self.assertEqual(sorted(mounts), sorted(volume["name"] for volume in self.replicas["Worker"]["template"]["spec"]["volumes"]))
        self.assertIn(launch[launch.index("-wdir") + 1], mounts.values())

    def test_the_launcher_turns_1_without_a_verdict_into_3(self):
        command = self.container("Launcher")["command"]
        for code, printed, expected in ((0, "Verdict: pass (exit code 0)", 0), (1, "Verdict: fault (exit code 1)", 1), (1, "no slots", 3), (4, "", 4)):
            mpirun = self.folder / "mpirun"
            mpirun.write_text(f"#!/bin/sh\necho '{printed}'\nexit {code}\n")
            mpirun.chmod(0o755)
            done = subprocess.run(command, capture_output=True, text=True, timeout=20, env={**os.environ, "PATH": f"{self.folder}:{os.environ['PATH']}"})
            self.assertEqual((done.returncode, done.stdout), (expected, printed + "\n"), done.stderr)

    def test_the_exit_code_is_that_of_the_verdict(self):
        """mpirun exits with 1 after SIGTERM."""
        command = self.container("Launcher")["command"]
        for code, verdict, expected in ((1, "interrupted (exit code 6)", 6), (143, "interrupted (exit code 6)", 6), (137, "fault (exit code 1)", 1),
                                        (1, "incomplete (exit code 4)", 4), (139, "pass (exit code 0)", 4), (137, "", 137)):
            with self.subTest(code=code, verdict=verdict):
                mpirun = self.folder / "mpirun"
                mpirun.write_text(f"#!/bin/sh\necho '{'Verdict: ' * bool(verdict)}{verdict}'\nexit {code}\n")
                mpirun.chmod(0o755)
                done = subprocess.run(command, capture_output=True, text=True, timeout=20, env={**os.environ, "PATH": f"{self.folder}:{os.environ['PATH']}"})
                self.assertEqual(done.returncode, expected, done.stdout + done.stderr)

    def test_the_program_takes_its_arguments(self):
        """Except for the folder, which is the pod's."""
        arguments = [str(self.folder) if word == "/scratch" else word for word in self.container("Launcher")["args"]]
        done = self.run_program(*arguments, "--print-config")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn(f'io-dir = "{self.folder}"', done.stdout.replace("'", '"'))

    def test_list_of_hosts(self):
        lines = [line for line in (SCRIPTS / "hosts.example").read_text().splitlines() if not line.startswith("#")]
        self.assertGreater(len(lines), 1)
        for line in lines:
            self.assertRegex(line, r"^\w+ slots=[1-9]\d*$")


if __name__ == "__main__":
    unittest.main()
