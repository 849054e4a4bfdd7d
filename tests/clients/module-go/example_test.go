package module

import (
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"truce.invalid/truce"
)

func TestTheExampleWorks(t *testing.T) {
	folder := t.TempDir()
	program, store := filepath.Join(folder, "worker"), filepath.Join(folder, "school.truce")
	if out, err := exec.Command("go", "build", "-o", program, "truce.invalid/truce/example/worker").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	worker := exec.Command(program, "-store", store)
	worker.Stderr = os.Stderr
	must(t, worker.Start())
	defer func() { _ = worker.Process.Kill() }()
	must(t, exec.Command(program, "-store", store, "-add", "ada@example.org").Run())
	db := ok(truce.Open(store))(t) // a third process
	enqueue(t, db, "letters", M{"to": "bob@example.org"}, M{})
	eventually(t, "the letters are sent", func() bool {
		found := states(t, db, "letters")
		return found["done"] == 2 && found["discarded"] == 1
	})
	same(t, field(t, db, "totals", "letters", "n"), 2)
	must(t, db.Close())
	must(t, worker.Process.Signal(syscall.SIGTERM))
	must(t, worker.Wait())
}
