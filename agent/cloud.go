package agent

import (
	"os"
	"path/filepath"
	"strings"
)

// azureTag is what Azure writes on its chassis.
const azureTag = "7783-7084-3265-9085-8269-3286-77"

// cloudProvider tells from what the firmware says of the machine in whose cloud it is: EC2, GCP or Azure, as Sensu names them;
// "" for none of these. It asks nobody over the network.
func cloudProvider(dmi string) string {
	read := func(name string) string {
		b, err := os.ReadFile(filepath.Join(dmi, name))
		if err != nil {
			return ""
		}
		return strings.TrimSpace(string(b))
	}
	vendor := read("sys_vendor")
	switch {
	case vendor == "Amazon EC2", strings.Contains(read("bios_version"), "amazon"):
		return "EC2"
	case vendor == "Google", read("product_name") == "Google Compute Engine":
		return "GCP"
	case vendor == "Microsoft Corporation" && read("chassis_asset_tag") == azureTag:
		return "Azure"
	}
	return ""
}
