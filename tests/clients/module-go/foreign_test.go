package module

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"truce.invalid/truce"
)

// otherServer starts a server of MongoDB's protocol that knows no command but hello, and returns
// its URI.
func otherServer(t *testing.T, wireVersion int) string {
	t.Helper()
	listener := ok(net.Listen("tcp", "127.0.0.1:0"))(t)
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer connection.Close()
				for answerOnce(connection, wireVersion) == nil {
				}
			}()
		}
	}()
	return "mongodb://" + listener.Addr().String() + "/school?directConnection=true"
}

// answerOnce reads a message, OP_QUERY or OP_MSG, and replies.
func answerOnce(connection io.ReadWriter, wireVersion int) error {
	head := make([]byte, 16)
	if _, err := io.ReadFull(connection, head); err != nil {
		return err
	}
	number := binary.LittleEndian.Uint32
	body := make([]byte, number(head)-16)
	if _, err := io.ReadFull(connection, body); err != nil {
		return err
	}
	start, kind, before := 5, uint32(2013), make([]byte, 5)
	if number(head[12:]) == 2004 {
		start = 4 + strings.IndexByte(string(body[4:]), 0) + 9
		kind, before = 1, make([]byte, 20)
		before[16] = 1 // one document
	}
	name := ""
	if first, err := bson.Raw(body[start : start+int(number(body[start:]))]).IndexErr(0); err == nil {
		name = first.Key()
	}
	reply := M{"ok": 0, "code": 59, "errmsg": "no such command: '" + name + "'"}
	if strings.EqualFold(name, "hello") || strings.EqualFold(name, "isMaster") {
		reply = M{"ok": 1, "isWritablePrimary": true, "ismaster": true, "helloOk": true, "minWireVersion": 0, "maxWireVersion": wireVersion,
			"maxBsonObjectSize": 16777216, "maxMessageSizeBytes": 48000000, "maxWriteBatchSize": 100000}
	}
	raw, err := bson.Marshal(reply)
	if err != nil {
		return err
	}
	message := binary.LittleEndian.AppendUint32(nil, uint32(16+len(before)+len(raw)))
	message = append(message, 1, 0, 0, 0)
	message = append(message, head[4:8]...)
	message = binary.LittleEndian.AppendUint32(message, kind)
	_, err = connection.Write(slices.Concat(message, before, raw))
	return err
}

func TestAServerThatIsNotTruceIsRefused(t *testing.T) {
	old := ok(truce.Connect(otherServer(t, 6)))(t) // too old for the driver
	_, err := old.Queues(ctx)
	if e := fails(t, err, truce.ErrWrongServer); !strings.Contains(e.Message, "not truce") {
		t.Fatal(e)
	}
	must(t, old.Close())
	db := ok(truce.Connect(otherServer(t, 21)))(t)
	t.Cleanup(func() { must(t, db.Close()) })
	_, err = db.Queues(ctx)
	fails(t, err, truce.ErrWrongServer)
	_, err = db.Enqueue(ctx, "mail", truce.EnqueueOptions{Payload: M{}})
	if e := fails(t, err, truce.ErrWrongServer); !strings.Contains(e.Message, "not truce") {
		t.Fatal(e)
	}
	c := db.Commit(truce.CommitOptions{})
	c.Insert("a", M{})
	_, err = c.Run(ctx)
	fails(t, err, truce.ErrWrongServer)
}

// The test runs itself with a libtruce whose version is 0.0.9.
func TestAnOldLibraryIsRefused(t *testing.T) {
	if os.Getenv("TRUCE_TEST_OLD_LIBRARY") != "" {
		_, err := truce.Open("memory:")
		fmt.Println("old:", fails(t, err, truce.ErrLibrary))
		return
	}
	program := ok(os.Executable())(t)
	names := ok(exec.Command("nm", "-D", "--undefined-only", program).Output())(t)
	source, version := "const char *truce_version(void) { return \"0.0.9\"; }\n", ""
	for _, found := range regexp.MustCompile(`U (truce_\w+)@(\w[\w.]*)`).FindAllStringSubmatch(string(names), -1) {
		version = found[2]
		if found[1] != "truce_version" {
			source += "void " + found[1] + "(void) {}\n"
		}
	}
	folder := t.TempDir()
	versions := filepath.Join(folder, "versions")
	must(t, os.WriteFile(versions, []byte(version+" { global: *; };"), 0o600))
	compile := exec.Command("cc", "-shared", "-fPIC", "-Wl,-soname,libtruce.so.0", "-Wl,--version-script="+versions,
		"-x", "c", "-", "-o", filepath.Join(folder, "libtruce.so.0"))
	compile.Stdin = strings.NewReader(source)
	if said, err := compile.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, said)
	}
	again := exec.Command(program, "-test.run", "^TestAnOldLibraryIsRefused$", "-test.v")
	again.Env = append(os.Environ(), "TRUCE_TEST_OLD_LIBRARY=1", "LD_LIBRARY_PATH="+folder)
	said, err := again.CombinedOutput()
	if err != nil || !strings.Contains(string(said), "old: truce: libtruce 0.0.9 is too old") {
		t.Fatalf("%v: %s", err, said)
	}
}
