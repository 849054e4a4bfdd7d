// Compares the verdicts of `truce verify` with those of porcupine: judge PROGRAM [HISTORY...]
//
// A history is a file of transactions, one on each line, as `truce help verify` describes it. Both checkers say
// whether it is strictly serializable, and they must agree. The checkers have nothing in common. truce builds a
// graph of dependencies (lists), or searches for an order (registers). porcupine, which is used to test etcd and
// others, searches for an order of operations on one object, which is the whole store here.
//
// Further histories are made up from a seed. Clients run transactions on a store of some isolation level:
// most of its histories are right if it is strictly serializable, and many are wrong otherwise.
package main

import (
	"bufio"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand"
	"os"
	"os/exec"
	"path/filepath"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"
)

type op struct {
	kind string // append, w, r
	key  string
	// The value of an append or a write. A read has nil, a number, or a list.
	value any
}

func (o op) MarshalJSON() ([]byte, error) { return json.Marshal([]any{o.kind, o.key, o.value}) }

func (o *op) UnmarshalJSON(text []byte) error {
	var parts []any
	decoder := json.NewDecoder(strings.NewReader(string(text)))
	decoder.UseNumber()
	if err := decoder.Decode(&parts); err != nil {
		return err
	}
	o.kind, o.key, o.value = parts[0].(string), parts[1].(string), parts[2]
	return nil
}

type transaction struct {
	Process int64  `json:"process"`
	Begin   int64  `json:"begin"`
	End     int64  `json:"end,omitempty"`
	Status  string `json:"status"`
	Ops     []op   `json:"ops"`
}

// ---- porcupine ---------------------------------------------------------------------------------

// The content of a key: "" is nothing, "5" a register, "2:HASH" a list of two values.
func content(value any) string {
	list, isList := value.([]any)
	if value == nil || isList && len(list) == 0 {
		return ""
	}
	if !isList {
		return fmt.Sprint(value)
	}
	kept := ""
	for _, one := range list {
		kept = appended(kept, one)
	}
	return kept
}

func appended(kept string, value any) string {
	count, _, _ := strings.Cut(kept, ":")
	length, _ := strconv.Atoi(count)
	sum := sha256.Sum256([]byte(kept + "," + fmt.Sprint(value)))
	return fmt.Sprintf("%d:%x", length+1, sum[:8])
}

// A transaction with the contents that it read or wrote.
type input struct {
	ops      []op
	contents []string
	ok       bool
}

// The state is the content of all keys, in their order: "x=2:HASH;y=3".
func parse(state string) map[string]string {
	keys := map[string]string{}
	for _, part := range strings.Split(state, ";") {
		if key, value, found := strings.Cut(part, "="); found {
			keys[key] = value
		}
	}
	return keys
}

func show(keys map[string]string) string {
	var parts []string
	for key, value := range keys {
		parts = append(parts, key+"="+value)
	}
	sort.Strings(parts)
	return strings.Join(parts, ";")
}

// Executes a transaction; false: it cannot be next, because a read had another result.
func step(state any, given any, _ any) (bool, any) {
	one := given.(input)
	keys := parse(state.(string))
	for i, op := range one.ops {
		switch op.kind {
		case "append":
			keys[op.key] = appended(keys[op.key], op.value)
		case "w":
			keys[op.key] = one.contents[i]
		case "r":
			if one.ok && keys[op.key] != one.contents[i] {
				return false, state
			}
		}
	}
	return true, show(keys)
}

// A history of many clients can take porcupine too long. This is no disagreement.
var errUndecided = errors.New("porcupine found no answer in a minute")

// Returns whether the history is strictly serializable by porcupine.
func porcupineSays(history []transaction) (bool, error) {
	read := map[string]bool{} // values that a transaction read, with their key
	last := int64(0)
	for _, one := range history {
		last = max(last, one.Begin, one.End)
		for _, op := range one.Ops {
			if op.kind != "r" || one.Status != "ok" {
				continue
			}
			list, isList := op.value.([]any)
			if !isList {
				list = []any{op.value}
			}
			for _, value := range list {
				read[op.key+"="+fmt.Sprint(value)] = true
			}
		}
	}
	var operations []porcupine.Operation
	for _, one := range history {
		end := one.End
		if one.Status == "fail" {
			continue
		}
		if one.Status == "unknown" {
			// It may take effect at any time, or never. If nothing of it was read, it can be left out.
			used := false
			for _, op := range one.Ops {
				used = used || op.kind != "r" && read[op.key+"="+fmt.Sprint(op.value)]
			}
			if !used {
				continue
			}
			end = last + 1
		}
		given := input{ops: one.Ops, ok: one.Status == "ok"}
		for _, op := range one.Ops {
			given.contents = append(given.contents, content(op.value))
		}
		operations = append(operations, porcupine.Operation{ClientId: len(operations), Input: given, Call: 2 * one.Begin, Return: 2*end + 1})
	}
	model := porcupine.Model{Init: func() any { return "" }, Step: step, Equal: func(a, b any) bool { return a == b }}
	result := porcupine.CheckOperationsTimeout(model, operations, time.Minute)
	if result == porcupine.Unknown {
		return false, errUndecided
	}
	return result == porcupine.Ok, nil
}

// ---- truce -------------------------------------------------------------------------------------

func truceSays(program, path string) (bool, string, error) {
	out, err := exec.Command(program, "verify", path).CombinedOutput()
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() == 1 && !strings.Contains(string(out), "undecided") {
		return false, string(out), nil
	}
	if err != nil {
		return false, string(out), fmt.Errorf("%s: %s", path, out)
	}
	return true, string(out), nil
}

func readHistory(path string) ([]transaction, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	var history []transaction
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 64<<20)
	for lines.Scan() {
		var one transaction
		if err := json.Unmarshal(lines.Bytes(), &one); err != nil {
			return nil, err
		}
		history = append(history, one)
	}
	return history, lines.Err()
}

func writeHistory(path string, history []transaction) error {
	var text strings.Builder
	encoder := json.NewEncoder(&text)
	for _, one := range history {
		if err := encoder.Encode(one); err != nil {
			return err
		}
	}
	return os.WriteFile(path, []byte(text.String()), 0o666)
}

// ---- histories that are made up ------------------------------------------------------------------

// A store that is strictly serializable, or wrong in one way.
type store struct {
	random *rand.Rand
	way    string // strict, snapshot, stale, lost, undone
	// The lists of each key, one entry for each commit.
	versions []map[string][]any
}

// Runs a transaction from a snapshot, and returns what it read.
func (s *store) run(ops []op, from map[string][]any) ([]op, map[string][]any) {
	view := map[string][]any{}
	for key, list := range from {
		view[key] = list
	}
	var done []op
	for _, one := range ops {
		list := view[one.key]
		switch one.kind {
		case "append":
			view[one.key] = append(append([]any{}, list...), one.value)
		case "w":
			view[one.key] = []any{one.value}
		case "r":
			switch {
			case len(list) == 0:
				one.value = nil
			case one.key[0] == 'r':
				one.value = list[0]
			default:
				one.value = list
			}
		}
		done = append(done, one)
	}
	return done, view
}

// Executes a transaction between its beginning, at version `began`, and now.
func (s *store) execute(ops []op, began int) []op {
	now := s.versions[len(s.versions)-1]
	from := now
	switch s.way {
	case "snapshot":
		from = s.versions[began]
	case "stale":
		from = s.versions[max(0, len(s.versions)-1-s.random.Intn(3))]
	}
	done, _ := s.run(ops, from)
	var writes []op // what was read does not change what is written
	for _, one := range ops {
		if one.kind != "r" && !(s.way == "lost" && s.random.Intn(8) == 0) {
			writes = append(writes, one)
		}
	}
	_, view := s.run(writes, now)
	s.versions = append(s.versions, view)
	return done
}

type client struct {
	begin, at int64
	began     int
	ops       []op
}

func makeUp(random *rand.Rand) []transaction {
	ways := []string{"strict", "strict", "snapshot", "stale", "lost", "undone"}
	keys := [][]string{{"lx", "ly"}, {"rx", "ry"}, {"lx", "ry"}}[random.Intn(3)]
	store := &store{random: random, way: ways[random.Intn(len(ways))], versions: []map[string][]any{{}}}
	clients := make([]*client, 2+random.Intn(4))
	var history []transaction
	value := 0
	for clock, last := int64(1), int64(10+random.Intn(90)); clock <= last; clock++ {
		number := random.Intn(len(clients))
		one := clients[number]
		if one == nil {
			one = &client{begin: clock, began: len(store.versions) - 1}
			for i := 0; i <= random.Intn(3); i++ {
				key := keys[random.Intn(len(keys))]
				value++
				if random.Intn(2) == 0 {
					one.ops = append(one.ops, op{"r", key, nil})
				} else if key[0] == 'l' {
					one.ops = append(one.ops, op{"append", key, value})
				} else {
					one.ops = append(one.ops, op{"w", key, value})
				}
			}
			clients[number] = one
			continue
		}
		clients[number] = nil
		t := transaction{Process: int64(number), Begin: one.begin, End: clock, Status: "ok", Ops: one.ops}
		switch fate := random.Intn(12); {
		case fate == 0: // an unknown outcome, with its effect
			store.execute(one.ops, one.began)
			t.Status, t.End = "unknown", 0
		case fate == 1: // without
			t.Status, t.End = "unknown", 0
		case fate == 2:
			t.Status = "fail"
			if store.way == "undone" {
				store.execute(one.ops, one.began)
			}
		default:
			t.Ops = store.execute(one.ops, one.began)
		}
		history = append(history, t)
	}
	return history
}

// ---- the comparison ------------------------------------------------------------------------------

func compare(program, path string, history []transaction) (right bool, err error) {
	truce, said, err := truceSays(program, path)
	if err != nil {
		return false, err
	}
	porcupine, err := porcupineSays(history)
	if err == nil && truce != porcupine {
		err = fmt.Errorf("%s: porcupine says %v, and truce says:\n%s", path, porcupine, said)
	}
	return truce, err
}

// Makes up histories and compares the verdicts. A history without agreement is kept.
func makeHistories(program string, note func(bool, error)) {
	folder, err := os.MkdirTemp("", "judge")
	if err != nil {
		panic(err)
	}
	seed := time.Now().UnixNano()
	if given, err := strconv.ParseInt(os.Getenv("TRUCE_TEST_SEED"), 10, 64); err == nil {
		seed = given
	}
	number := 250
	if given, err := strconv.Atoi(os.Getenv("TRUCE_JUDGE_HISTORIES")); err == nil {
		number = given
	}
	fmt.Printf("TRUCE_TEST_SEED=%d\n", seed)
	random := rand.New(rand.NewSource(seed))
	for i := 0; i < number; i++ {
		history := makeUp(random)
		if len(history) == 0 {
			continue
		}
		path := filepath.Join(folder, fmt.Sprintf("%d.ndjson", i))
		if err := writeHistory(path, history); err != nil {
			panic(err)
		}
		right, err := compare(program, path, history)
		note(right, err)
		if err == nil {
			os.Remove(path)
		}
	}
	os.Remove(folder) // if it is empty
}

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "usage: judge PROGRAM [HISTORY...]")
		os.Exit(2)
	}
	program, paths := os.Args[1], os.Args[2:]
	count := map[bool]int{}
	failed := 0
	note := func(right bool, err error) {
		if err != nil {
			fmt.Println(err)
			if !errors.Is(err, errUndecided) {
				failed++
			}
		} else {
			count[right]++
		}
	}
	for _, path := range paths {
		history, err := readHistory(path)
		if err != nil {
			note(false, err)
			continue
		}
		right, err := compare(program, path, history)
		note(right, err)
		fmt.Printf("%s: %d transactions: %v\n", filepath.Base(path), len(history), right)
	}
	makeHistories(program, note)
	fmt.Printf("judge, porcupine 1.3.1: %d histories are right by both, %d wrong by both\n", count[true], count[false])
	fmt.Printf("judge: %d passed, %d failed\n", count[true]+count[false], failed)
	if failed > 0 || count[true]+count[false] == 0 {
		os.Exit(1)
	}
}
