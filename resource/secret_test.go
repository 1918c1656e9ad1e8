package resource

import "testing"

func TestSecretName(t *testing.T) {
	for _, name := range []string{
		"PASSWORD", "DB_PASSWORD", "MYSQL_PWD", "PGPASSWORD", "GITHUB_TOKEN", "API_KEY", "AWS_SECRET_ACCESS_KEY",
		"Authorization", "Proxy-Authorization",
		"X-Auth-Token", "Private-Token", "Cookie", "X-Api-Key", "SMTP_PASS", "SSHPASS", "masterKey", "KEY1", "APP_PSK",
	} {
		if !SecretName(name) {
			t.Errorf("%s is no secret", name)
		}
	}
	for _, name := range []string{"RACK", "BYPASS", "COMPASS_URL", "MONKEY", "Accept", "User-Agent", "AUTHOR", "PATH"} {
		if SecretName(name) {
			t.Errorf("%s is a secret", name)
		}
	}
}
