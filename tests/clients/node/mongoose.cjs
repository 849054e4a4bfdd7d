// mongoose: schemas, populate, versions of documents, transactions, against the server of tests/clients/run.
const mongoose = require("mongoose");

let passed = 0, failed = 0;

function equal(what, found, wanted) {
    const [a, b] = [found, wanted].map((value) => JSON.stringify(value));
    if (a === b) passed++;
    else {
        failed++;
        console.log(`FAILED: ${what}: ${a}, not ${b}`);
    }
}

async function main() {
    await mongoose.connect(process.env.TRUCE_TEST_CLIENT_URI, { dbName: "mongoose" });
    await mongoose.connection.dropDatabase();
    const Author = mongoose.model("Author", new mongoose.Schema({ name: { type: String, required: true, unique: true }, born: Date }, { timestamps: true }));
    const Book = mongoose.model("Book", new mongoose.Schema({ title: String, pages: Number, tags: [String], author: { type: mongoose.Schema.Types.ObjectId, ref: "Author" } }, { optimisticConcurrency: true }));
    await Promise.all([Author.init(), Book.init()]);

    const ada = await Author.create({ name: "Ada", born: new Date(0) });
    const [one, two] = await Book.create([{ title: "One", pages: 100, author: ada }, { title: "Two", pages: 200, author: ada, tags: ["x"] }]);
    equal("create", [await Author.countDocuments(), await Book.countDocuments()], [1, 2]);
    equal("populate", (await Book.findOne({ title: "Two" }).populate("author")).author.name, "Ada");
    one.pages = 101;
    one.tags.push("y");
    await one.save();
    equal("save", (await Book.findById(one._id).lean()).tags, ["y"]);
    const error = await Author.create({ name: "Ada" }).catch((e) => e);
    equal("a key that is taken", [error.code, error.keyPattern, error.keyValue], [11000, { name: 1 }, { name: "Ada" }]);
    equal("a schema", (await Author.create({}).catch((e) => e)).name, "ValidationError");
    const stale = await Book.findById(two._id);
    await Book.findById(two._id).then((book) => book.set({ pages: 201 }).save());
    equal("a version that is old", (await stale.set({ pages: 202 }).save().catch((e) => e)).name, "VersionError");
    equal("findOneAndUpdate", (await Book.findOneAndUpdate({ title: "Two" }, { $inc: { pages: 1 } }, { returnDocument: "after" })).pages, 202);
    equal("aggregate", await Book.aggregate([{ $group: { _id: null, pages: { $sum: "$pages" } } }]), [{ _id: null, pages: 303 }]);
    equal("bulkSave", (await Book.bulkSave([await Book.findById(one._id).then((b) => b.set({ pages: 1 }))])).modifiedCount, 1);
    let n = 0;
    for await (const book of Book.find().sort({ title: 1 }).cursor({ batchSize: 1 })) n += book.pages;
    equal("cursor", n, 203);
    await mongoose.connection.transaction(async (session) => {
        await Book.deleteOne({ title: "One" }, { session });
        equal("within a transaction", await Book.countDocuments({}, { session }), 1);
    });
    equal("a transaction", await Book.countDocuments(), 1);
    await mongoose.connection.transaction(async (session) => {
        await Book.deleteMany({}, { session });
        throw new Error("undone");
    }).catch(() => {});
    equal("one that is undone", await Book.countDocuments(), 1);
    equal("syncIndexes", await Author.syncIndexes(), []);
    await mongoose.disconnect();
    console.log(`mongoose ${mongoose.version} (node ${process.version}): ${passed} passed, ${failed} failed`);
    process.exit(failed ? 1 : 0);
}

main().catch((error) => {
    console.log("FAILED: mongoose:", error);
    process.exit(1);
});
