package protocol

// Documents is a Protocol that keeps documents in the journal.
type Documents interface {
	// RestoreDocument is given each document of the journal, in the order of their kinds, behind the settings. d is
	// the caller's again when it returns.
	RestoreDocument(d *Document) error
	// Restored is called when the jobs, too, are in the scheduler.
	Restored() error
}

// Document is a durable thing of a protocol that is known by its name: a project of kts46, or what is kept of a job
// in one.
type Document struct {
	Kind    DocumentKind
	Project []byte
	Name    []byte // of the job; a project has none
	Value   []byte
}

// DocumentKind says what a document is. The numbers are the journal's, on disk.
type DocumentKind uint8

// The kinds, behind those of the scheduler's records.
const (
	KindProject    DocumentKind = iota + 5
	KindNumbers                 // what the scheduler needs of a job's definition
	KindDefinition              // of a job in a project
	KindProgress                // how far the job is
)

// String is the kind's name.
func (k DocumentKind) String() string {
	return [...]string{"project", "numbers", "definition", "progress"}[k-KindProject]
}
