package resource

// ObjectMeta has a resource's name, namespace, labels and annotations.
type ObjectMeta struct {
	Name        string            `json:"name,omitempty" pb:"1"`
	Namespace   string            `json:"namespace,omitempty" pb:"2"`
	Labels      map[string]string `json:"labels,omitempty" pb:"3"`
	Annotations map[string]string `json:"annotations,omitempty" pb:"4"`
	CreatedBy   string            `json:"created_by,omitempty" pb:"5"`
}

// ResourceReference refers to another resource, for example a pipeline, by name, type and API version.
type ResourceReference struct {
	Name       string `json:"name" pb:"1"`
	Type       string `json:"type" pb:"2"`
	APIVersion string `json:"api_version" pb:"3"`
}

// Secret maps an environment variable (Name) to a Secret resource (Secret).
type Secret struct {
	Name   string `json:"name,omitempty" pb:"1"`   // name of the variable
	Secret string `json:"secret,omitempty" pb:"2"` // name of the secret
}
