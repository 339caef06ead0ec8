package protocol

// DocumentRestorer is a Protocol with documents in the journal.
type DocumentRestorer interface {
	// RestoreDocument takes a document from the journal, after the settings and in the order of
	// kinds. It keeps no view of d.
	RestoreDocument(d *Document) error
	// Restored is called once the scheduler has the jobs of the journal.
	Restored() error
}

// Document is a durable record that is found by its names: a project of kts46, or a part of one of
// the project's jobs.
type Document struct {
	Kind    DocumentKind
	Project []byte
	Name    []byte // the job; empty for a project
	Value   []byte
}

// DocumentKind is the kind of a document.
type DocumentKind uint8

// The kinds, in the order in which a start restores them.
const (
	KindProject     DocumentKind = iota
	KindBatchParams              // the part of a job's definition that the scheduler needs
	KindDefinition               // a job's definition
	KindProgress                 // a job's progress
)

// String returns the kind's name.
func (k DocumentKind) String() string {
	return [...]string{"project", "numbers", "definition", "progress"}[k]
}
