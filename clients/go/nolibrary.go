//go:build !cgo

package truce

// LibraryVersion returns "": this program was built without libtruce.
func LibraryVersion() string { return "" }

func openLibrary(string, OpenOptions) (transport, error) {
	return nil, fail(ErrLibrary, 0, "this program was built without cgo, so it can only connect "+
		"to a server: install a C compiler and libtruce-dev, and build it with CGO_ENABLED=1")
}
