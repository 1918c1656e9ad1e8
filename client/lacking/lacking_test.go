package lacking

import (
	"os"
	"strings"
	"testing"
)

// TestDocs: the docs say the same as the commands.
func TestDocs(t *testing.T) {
	text, err := os.ReadFile("../../docs/compatibility.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range Commands {
		if row := "| `sensuctl " + c.Name + "` | " + c.Instead + " |"; !strings.Contains(string(text), row) {
			t.Errorf("docs/compatibility.md lacks the row %s", row)
		}
	}
	_, notThere, _ := strings.Cut(string(text), "\n## Not there\n")
	for _, k := range Kinds {
		for _, typ := range k.Types {
			if typ != "LicenseFile" && !strings.Contains(notThere, strings.TrimSuffix(typ, "Provider")) && typ != "EtcdReplicator" && typ != "Cluster" {
				t.Errorf("docs/compatibility.md, \"Not there\", does not name %s", typ)
			}
		}
	}
}

func TestInsteadOf(t *testing.T) {
	if InsteadOf("secrets/v1", "VaultProvider") == "" || InsteadOf("", "EtcdReplicator") == "" || InsteadOf("core/v2", "Secret") != "" {
		t.Error("wrong kinds")
	}
	if InsteadOfCommand("secrets") == "" || InsteadOfCommand("etcd-replicator") == "" || InsteadOfCommand("check") != "" {
		t.Error("wrong commands")
	}
}
