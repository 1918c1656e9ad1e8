package agent

import (
	"os"
	"path/filepath"
	"strings"
)

// azureTag is the asset tag of Azure's chassis.
const azureTag = "7783-7084-3265-9085-8269-3286-77"

// cloudProvider derives the cloud provider from the firmware's data: EC2, GCP or Azure, as Sensu names them; "" for
// none of these. It sends nothing over the network.
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
