package truce

import (
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// Amounts of a ledger are integers of the currency's smallest unit. The store accepts 12.0, because
// drivers for JavaScript send some integers as floating-point numbers. In Go, a float64 probably
// has another unit: 12.0 for 12.00 euros.

// amounts refuses floating-point amounts in the options of a posting.
func (d *document) amounts(options any) {
	switch given := options.(type) {
	case *LedgerPostOptions:
		eachItem(given.Entries, func(i int, entry bson.RawValue) {
			d.entryAmount(fmt.Sprintf("Entries[%d]", i), entry)
		})
	case *LedgerPostManyOptions:
		eachItem(given.Transactions, func(i int, transaction bson.RawValue) {
			eachItem(subdocument(transaction).Lookup("entries"), func(k int, entry bson.RawValue) {
				d.entryAmount(fmt.Sprintf("Transactions[%d], entries[%d]", i, k), entry)
			})
		})
	}
}

func (d *document) entryAmount(where string, entry bson.RawValue) {
	if amount, is := subdocument(entry).Lookup("value").DoubleOK(); is {
		d.refuse(fmt.Sprintf("value of %s is the float64 %v: expected an integer of the currency's "+
			"smallest unit, such as int64(1250) for 12.50", where, amount))
	}
}

// eachItem calls the function for each element of a slice. Any other value has none; the store
// reports its type.
func eachItem(list any, each func(i int, value bson.RawValue)) {
	kind, raw, err := marshalValue(list)
	if err != nil || kind != bson.TypeArray {
		return
	}
	values, _ := bson.RawArray(raw).Values()
	for i, value := range values {
		each(i, value)
	}
}

// subdocument returns an empty document for a value of another type.
func subdocument(value bson.RawValue) bson.Raw {
	raw, _ := value.DocumentOK()
	return raw
}
