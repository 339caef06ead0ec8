package periodic

import codec "treadle/codec/periodic"

// wireVersion describes the replies of the original server from a date on.
type wireVersion struct {
	dataResults bool             // DATA carries the reply of RUN_JOB
	dataReports bool             // DATA carries the replies of STATUS, DUMP and the handshake
	status      codec.StatusForm // of STATUS
	failEnds    bool             // RUN_JOB ends with the first failure and needs a worker
	acksWorkers bool             // SUCCESS answers a worker's notifications
	failed      []byte           // the result of a RUN_JOB whose job failed
	removed     []byte           // the result of a RUN_JOB whose job was removed
	config2026  bool             // CONFIG has the keys and defaults of 1.2.9.1
	expiresRuns bool             // RUN_JOB expires
}

// plainVersion is the version of the framing of 2018.
var plainVersion = wireVersion{status: codec.StatusPlain}

// wireVersions holds the versions of the CRC framing by the values of --periodic-crc: the date of the first such reply.
var wireVersions = map[string]*wireVersion{
	"2019-02": {status: codec.StatusCRC},
	"2019":    {status: codec.StatusCRC, dataResults: true, failEnds: true},
	"2020":    {status: codec.StatusCRC, dataResults: true, failEnds: true, dataReports: true},
	"2023":    {status: codec.StatusCRC, dataResults: true, failEnds: true, dataReports: true, acksWorkers: true, failed: resultFailed, removed: resultRemoved},
	"2026": {status: codec.StatusCRC, dataResults: true, failEnds: true, dataReports: true, acksWorkers: true, failed: resultFailed,
		removed: resultRemoved, config2026: true, expiresRuns: true},
}

// The results of a RUN_JOB whose job failed or was removed. Before March 2022 they are empty.
var resultFailed, resultRemoved = []byte("failed"), []byte("removed")

// endOfData is the last DATA of a stream.
var endOfData = []byte("EOF")
