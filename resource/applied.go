package resource

// LastAppliedAnnotation is the annotation with what the last apply wrote to a definition, in JSON. So the next apply
// knows which fields it may remove, and which ones others have set.
const LastAppliedAnnotation = "lapwing.io/last-applied"
