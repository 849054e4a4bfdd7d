// Package hook connects the package trucetest with parts of truce that are not exported.
package hook

// After returns a *truce.Database that calls a function after each operation and each transaction
// that succeeded. Package truce sets it.
var After func(database any, function func()) any
