import { Modal, Table } from '@mantine/core'
import { useDisclosure, useHotkeys } from '@mantine/hooks'
import { text } from '../text'

/** The list of keys, opened by "?". */
export function KeyHelp() {
  const [opened, { open, close }] = useDisclosure()
  useHotkeys([['shift + ?', open]])
  return (
    <Modal opened={opened} onClose={close} title={text.keys} closeButtonProps={{ 'aria-label': text.close }}>
      <Table verticalSpacing={6}>
        <Table.Tbody>
          {text.keyHelp.map(([keys, help]) => (
            <Table.Tr key={help}>
              <Table.Td w={140}>
                {keys.map((key) => (
                  <kbd key={key}>{key}</kbd>
                ))}
              </Table.Td>
              <Table.Td>{help}</Table.Td>
            </Table.Tr>
          ))}
        </Table.Tbody>
      </Table>
    </Modal>
  )
}
