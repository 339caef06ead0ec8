// Run by MongoDB's shell: makes queues and tasks as people do by hand, waits until two nodes have done them, and prints
// what they wrote, a line of canonical extended JSON for each document, with the name of its collection before it.
const queue = (doc) => db.queues.insertOne(doc).insertedId;
const task = (queue, fields) => db.tasks.insertOne({
	queue, status: -2, stdout: null, stderr: null, ctime: new Date(), mtime: new Date(), ...fields,
});
const of2018 = queue({ name: "inline", plugin: "Report", threads: 1, sort: "fifo", nodes_pin: ["a"] });
const of2016 = queue({ name: "demo", constructor: "Disbatch::Plugin::Demo", maxthreads: "1", nodes_pin: ["a"] });
const inFiles = queue({ name: "files", plugin: "Long", threads: 1, nodes_pin: ["b"] });
task(of2018, { node: null, params: { user: "ann" } });
task(of2018, { node: null, params: {} });
task(of2016, { node: -1, parameters: { commands: "abc" } });
task(inFiles, { node: null, params: { user: "ann" } });

const end = Date.now() + 60000;
while (db.tasks.countDocuments({ status: { $lte: 0 } }) > 0 || Number(db.queues.findOne({ _id: of2016 }).count_todo) !== 0) {
	if (Date.now() > end) {
		break; // what is printed says which task is not done
	}
	sleep(100);
}
const show = (name) => db.getCollection(name).find().sort({ _id: 1 }).forEach((doc) => {
	print(name + " " + EJSON.stringify(doc, { relaxed: false }));
});
["queues", "tasks", "nodes", "tasks.files"].forEach(show);
// A chunk as the original reads it: a string, cut by characters.
db.getCollection("tasks.chunks").find().sort({ files_id: 1, n: 1 }).forEach((chunk) => {
	print("tasks.chunks " + EJSON.stringify({ files_id: chunk.files_id, n: chunk.n, type: typeof chunk.data, characters: [...chunk.data].length }, { relaxed: false }));
});
